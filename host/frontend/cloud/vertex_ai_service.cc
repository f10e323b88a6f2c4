// Chooses the default model and redirects requests.
#include "host/frontend/cloud/vertex_ai_service.h"

#include <set>
#include <utility>

#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/http/router.h"
#include "host/frontend/http/transport/http_connection.h"

namespace nereid::http {
namespace {

constexpr char kVertexAiBinaryType[] =
    "application/vnd.vertex-ai-triton.binary+json;json-header-size=";
constexpr std::string_view kRedirectHeader = "X-Vertex-Ai-Triton-Redirect";

Result<std::set<std::string>> ReadyModels(const Server& server) {
  NEREID_ASSIGN_OR_RETURN(const Message index, server.ModelIndex(/*ready_only=*/true));
  NEREID_ASSIGN_OR_RETURN(const std::string_view json, index.Json());
  std::set<std::string> models;
  JsonReader reader(json, /*max_depth=*/8);
  NEREID_RETURN_IF_ERROR(reader.ReadArray([&]() -> Status {
    return reader.ReadObject([&](std::string_view key) -> Status {
      if (key != "name") return reader.SkipValue();
      NEREID_ASSIGN_OR_RETURN(const std::string_view name, reader.ReadString());
      models.emplace(name);
      return Status::Ok();
    });
  }));
  return models;
}

Result<std::string> ChooseModel(const Server& server, const std::string& requested) {
  NEREID_ASSIGN_OR_RETURN(const std::set<std::string> models, ReadyModels(server));
  if (requested.empty()) {
    if (models.size() == 1) return *models.begin();
    return InvalidArgError(
        "--vertex-ai-default-model: required unless exactly one model is ready, got ",
        models.size());
  }
  if (models.contains(requested)) return requested;
  return InvalidArgError("--vertex-ai-default-model: expected a ready model, got '", requested,
                         "'");
}

Status CheckRoutes(const VertexAiOptions& options) {
  const std::pair<const char*, const std::string&> routes[] = {
      {"AIP_PREDICT_ROUTE", options.predict_route}, {"AIP_HEALTH_ROUTE", options.health_route}};
  for (const auto& [variable, route] : routes) {
    if (route.starts_with('/')) continue;
    return InvalidArgError("Vertex AI: expected a path in the variable ", variable, ", got '",
                           route, "'");
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<VertexAiService>> VertexAiService::Create(const Server& server,
                                                                 FrontendState& state,
                                                                 KServeOptions kserve,
                                                                 const VertexAiOptions& options) {
  NEREID_RETURN_IF_ERROR(CheckRoutes(options));
  VertexAiOptions chosen = options;
  NEREID_ASSIGN_OR_RETURN(chosen.default_model, ChooseModel(server, options.default_model));
  kserve.binary_content_type = kVertexAiBinaryType;
  NEREID_ASSIGN_OR_RETURN(auto service, KServeService::Create(server, state, kserve));
  return std::unique_ptr<VertexAiService>(
      new VertexAiService(server, state, std::move(service), chosen));
}

std::optional<VertexAiService::Redirection> VertexAiService::RedirectionOf(const RequestHead& head,
                                                                           bool has_body) const {
  if (head.path == options_.health_route) return Redirection{"/v2/health/ready", head.method};
  if (head.path != options_.predict_route || head.method != Method::kPost) return std::nullopt;
  const std::string_view target = head.Header(kRedirectHeader);
  if (target.data() == nullptr) {
    return Redirection{StrCat("/v2/models/", options_.default_model, "/infer"), Method::kPost};
  }
  // Vertex AI always sends POST; the endpoint receives the method that it accepts.
  std::string path = StrCat("/", target);
  const Endpoint endpoint = FindRoute(path).endpoint;
  const bool is_get = !has_body && AcceptsMethod(endpoint, Method::kGet);
  const bool is_post = !is_get && AcceptsMethod(endpoint, Method::kPost);
  return Redirection{std::move(path), is_post ? Method::kPost : Method::kGet};
}

// A chunked body may turn out to be empty, so that both methods are possible.
bool VertexAiService::AwaitsBody(const HttpConnection& connection, const RequestHead& head) {
  for (const bool has_body : {true, false}) {
    if (!has_body && !head.is_chunked) continue;
    const std::optional<Redirection> redirection = RedirectionOf(head, has_body);
    if (!redirection || redirection->path == "/metrics") return false;
    RequestHead redirected = head;
    redirected.path = redirection->path;
    redirected.method = redirection->method;
    if (kserve_->AwaitsBody(connection, redirected)) return true;
  }
  return false;
}

void VertexAiService::Handle(HttpConnection& connection, const RequestHead& head,
                             RequestBody&& body) {
  // The body is empty, too, if AwaitsBody has refused it.
  const bool has_body = !body.bytes().empty() || head.content_length.value_or(0) > 0;
  const std::optional<Redirection> redirection = RedirectionOf(head, has_body);
  if (!redirection) {
    const bool is_known = head.path == options_.predict_route;
    return connection.Reply({.status = is_known ? 405 : 404},
                            ErrorBody(is_known ? "Method Not Allowed" : "Not Found"));
  }
  RequestHead redirected = head;
  redirected.path = redirection->path;
  redirected.method = redirection->method;
  if (redirection->path == "/metrics") {
    metrics_.Handle(connection, redirected, std::move(body));
  } else {
    kserve_->Handle(connection, redirected, std::move(body));
  }
}

}  // namespace nereid::http
