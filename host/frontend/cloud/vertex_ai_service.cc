// Chooses the default model and redirects requests.
#include "host/frontend/cloud/vertex_ai_service.h"

#include <set>
#include <utility>

#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/http/router.h"
#include "host/frontend/http/transport/http_connection.h"

namespace nereid::http {
namespace {

constexpr char kBinaryContentType[] =
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
  kserve.binary_content_type = kBinaryContentType;
  NEREID_ASSIGN_OR_RETURN(auto service, KServeService::Create(server, state, kserve));
  return std::unique_ptr<VertexAiService>(
      new VertexAiService(server, state, std::move(service), chosen));
}

void VertexAiService::Handle(HttpConnection& connection, const RequestHead& head,
                             RequestBody body) {
  std::string path;
  RequestHead redirected = head;
  const std::string_view target = head.Header(kRedirectHeader);
  if (head.path == options_.health_route) {
    path = "/v2/health/ready";
  } else if (head.path != options_.predict_route) {
    connection.Reply({.status = 404}, ErrorBody("Not Found"));
    return;
  } else if (head.method != Method::kPost) {
    connection.Reply({.status = 405}, ErrorBody("Method Not Allowed"));
    return;
  } else if (target.data() == nullptr) {
    path = StrCat("/v2/models/", options_.default_model, "/infer");
  } else {
    // Vertex AI always sends POST; the endpoint receives the method that it accepts.
    path = StrCat("/", target);
    const Endpoint endpoint = FindRoute(path).endpoint;
    const bool is_get = body.bytes().empty() && AcceptsMethod(endpoint, Method::kGet);
    redirected.method =
        is_get || !AcceptsMethod(endpoint, Method::kPost) ? Method::kGet : Method::kPost;
  }
  redirected.path = path;
  if (path == "/metrics") {
    metrics_.Handle(connection, redirected, std::move(body));
  } else {
    kserve_->Handle(connection, redirected, std::move(body));
  }
}

}  // namespace nereid::http
