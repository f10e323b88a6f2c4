#include "host/frontend/openai/openai_service.h"

#include <ctime>
#include <utility>

#include "host/frontend/http/bodies/compression.h"
#include "host/frontend/http/calls/decompressing_call.h"
#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/http/request_access.h"
#include "host/frontend/http/router.h"
#include "host/frontend/openai/calls/load_wait.h"
#include "host/frontend/openai/console/console_file.h"
#include "host/frontend/openai/routes/route_support.h"
#include "host/log.h"

namespace nereid::openai {

using http::Method;

namespace {

constexpr std::string_view kConsolePath = "/console";

bool IsConsolePath(std::string_view path) {
  return path == "/" || path == kConsolePath || path.starts_with("/console/");
}

// The member `model` of a body; empty if it has none. The route reports what is wrong with a body.
std::string ModelNameOf(std::string_view json, size_t max_depth) {
  std::string model;
  http::JsonReader reader(json, max_depth);
  (void)reader.ReadObject([&](std::string_view member) -> Status {
    if (member != "model" || reader.Peek() != http::JsonKind::kString) return reader.SkipValue();
    NEREID_ASSIGN_OR_RETURN(model, reader.ReadString());
    return Status::Ok();
  });
  return model;
}

// True if a browser may have sent the request. KServe's clients send none of these headers, so that
// they reach a local server under any name of its host, also through a proxy. Every browser sends
// one: Origin with what a page posts, and the others with all requests.
bool MayComeFromPage(const http::RequestHead& head) {
  for (const char* const name : {"Origin", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Accept-Language"}) {
    if (head.Header(name).data() != nullptr) return true;
  }
  return false;
}

}  // namespace

OpenAiService::OpenAiService(std::unique_ptr<http::KServeService> kserve,
                             const OpenAiOptions& options, bool is_local, bool checks_kserve,
                             ModelDemand* demand, AccessLog* log)
    : kserve_(std::move(kserve)),
      origins_(options.cors_origins, is_local),
      checks_kserve_(checks_kserve && is_local),
      has_console_(options.console.value_or(false)),
      log_(log),
      responses_({.max_count = options.max_stored_responses,
                  .max_age = std::chrono::seconds(options.max_stored_age_s)}),
      context_{kserve_->context(),
               kserve_->is_draining(),
               responses_,
               running_,
               adapters_,
               demand,
               options.serves_metrics,
               std::time(nullptr),
               options.keep_alive_s} {}

// Null if the port does not serve the path as one of these routes.
const ApiRoute* OpenAiService::FindRoute(const http::RequestHead& head) const {
  const ApiRoute* const route = FindApiRoute(head.method, head.path);
  return route != nullptr && IsServed(context_, *route) ? route : nullptr;
}

bool OpenAiService::AwaitsBody(const http::HttpConnection& connection,
                               const http::RequestHead& head) {
  const ApiRoute* const route = FindRoute(head);
  if (route == nullptr) return kserve_->AwaitsBody(connection, head);
  const ApiCallerOf caller(connection, head);
  return AcceptsMethod(*route, head.method) &&
         !context_.kserve.access.Authenticate(caller, route->operation);
}

http::HttpService::Refusal OpenAiService::Refuse(const http::RequestHead& head, int status,
                                                 std::string_view reason) {
  if (FindRoute(head) == nullptr) {
    return kserve_->Refuse(head, status, reason);
  }
  return {status, ErrorFormOf(head.path)({.status = status, .message = std::string(reason)})};
}

std::optional<size_t> OpenAiService::NumLeadingBytes(const http::RequestHead& head,
                                                     uint64_t body_bytes) {
  return kserve_->NumLeadingBytes(head, body_bytes);
}

http::PostedMemory OpenAiService::AcquirePostedMemory(const http::RequestHead& head,
                                                      uint64_t rest_bytes) {
  return kserve_->AcquirePostedMemory(head, rest_bytes);
}

// Handles what concerns web pages. `is_api`: the route is not one of KServe's. Returns true if the
// request is answered.
bool OpenAiService::AnswerPage(http::HttpConnection& connection, const http::RequestHead& head,
                               bool is_api) {
  const std::string_view origin = head.Header("Origin");
  const bool is_listed = origins_.IsListed(origin);
  if (is_listed) {
    connection.AddResponseHeaders(StrCat("Access-Control-Allow-Origin: ", origin,
                                         "\r\nVary: Origin\r\n"
                                         "Access-Control-Expose-Headers: X-Request-Id\r\n"));
  }
  const std::string_view method = head.Header("Access-Control-Request-Method");
  if (is_listed && head.method == Method::kOptions && method.data() != nullptr) {
    const std::string_view headers = head.Header("Access-Control-Request-Headers");
    connection.AddResponseHeaders(
        "Access-Control-Allow-Methods: GET, POST, DELETE, OPTIONS\r\n"
        "Access-Control-Max-Age: 600\r\n");
    if (!headers.empty()) {
      connection.AddResponseHeaders(StrCat("Access-Control-Allow-Headers: ", headers, "\r\n"));
    }
    connection.Reply({.status = 204, .content_type = ""}, "");
    return true;
  }
  // A key does what the checks do: no page has it unless its user gave it.
  const bool is_checked = is_api || (checks_kserve_ && MayComeFromPage(head));
  if (!is_checked || context_.kserve.state.access.keys != nullptr) return false;
  const Status status = origins_.Check(origin, head.Header("Host"));
  if (status.ok()) return false;
  if (is_api) {
    ReplyApiError(connection, {.status = 403, .message = status.message()});
  } else {
    connection.Reply({.status = 403}, http::ErrorBody(status.message()));
  }
  return true;
}

// Answers with a file of the console, which needs no key: its users give theirs on the page.
// Returns false if another route stands at the path.
bool OpenAiService::AnswerConsole(http::HttpConnection& connection, const http::RequestHead& head) {
  if (head.method != Method::kGet && head.method != Method::kHead) return false;
  if (const ConsoleFile* const file = FindConsoleFile(head.path)) {
    connection.Reply({.content_type = file->content_type, .extra_headers = ConsoleHeaders()},
                     file->bytes);
    return true;
  }
  if (head.path != "/" && head.path != kConsolePath) return false;
  // Relative, so that a proxy may serve the console below another path.
  connection.Reply({.status = 302, .content_type = "", .extra_headers = "Location: console/\r\n"},
                   "");
  return true;
}

// Waits until the model is loaded, if it is one that is loaded on demand.
void OpenAiService::HandleApi(http::HttpConnection& connection, const http::RequestHead& head,
                              const ApiRoute& route, http::RequestBody body) {
  const std::string model = context_.demand == nullptr || route.fields == 0
                                ? ""
                                : ModelNameOf(body.bytes(), connection.limits().max_json_depth);
  if (model.empty() || !context_.demand->Knows(model)) {
    return route.handle(context_, connection, head, std::move(body));
  }
  if (!CheckApiAccess(context_, connection, head, route.operation, model)) return;
  // The head's strings are in the connection's memory or in that of the body.
  LoadWait::Start(*context_.demand, connection, model, std::move(body),
                  [this, &connection, head, &route](const Status& status, http::RequestBody kept) {
                    if (status.ok()) {
                      return route.handle(context_, connection, head, std::move(kept));
                    }
                    ReplyApiError(connection, {.status = 503, .message = status.message()},
                                  ErrorFormOf(head.path));
                  });
}

// The same for KServe's routes.
void OpenAiService::HandleKServe(http::HttpConnection& connection, const http::RequestHead& head,
                                 http::RequestBody&& body) {
  const http::Route route = context_.demand == nullptr ? http::Route() : http::FindRoute(head.path);
  const bool infers = route.endpoint == http::Endpoint::kInfer ||
                      route.endpoint == http::Endpoint::kGenerate ||
                      route.endpoint == http::Endpoint::kGenerateStream;
  if (!infers || head.method != Method::kPost || !context_.demand->Knows(route.model.name)) {
    return kserve_->Handle(connection, head, std::move(body));
  }
  if (!http::CheckAccess(context_.kserve.access, connection, head, ApiOperation::kInfer,
                         route.model.name)) {
    return;
  }
  LoadWait::Start(*context_.demand, connection, route.model.name, std::move(body),
                  [this, &connection, head](const Status& status, http::RequestBody kept) {
                    if (!status.ok()) return http::ReplyError(connection, status);
                    kserve_->Handle(connection, head, std::move(kept));
                  });
}

void OpenAiService::Handle(http::HttpConnection& connection, const http::RequestHead& head,
                           http::RequestBody&& body) {
  if (log_ != nullptr) connection.SetNotes(log_->Begin(head, connection.request_start_ns()));
  const ApiRoute* const route = FindRoute(head);
  const bool is_console = has_console_ && IsConsolePath(head.path);
  if (AnswerPage(connection, head, route != nullptr || is_console)) return;
  if (is_console && AnswerConsole(connection, head)) return;
  if (route == nullptr && head.path.starts_with("/v1/")) {  // KServe's paths begin with /v2
    return ReplyApiError(connection,
                         {.status = 404, .message = StrCat("there is no route ", head.path)},
                         ErrorFormOf(head.path));
  }
  if (route == nullptr) return HandleKServe(connection, head, std::move(body));
  LogVerbose("HTTP request: ", static_cast<int>(head.method), " ", head.path);
  if (!AcceptsMethod(*route, head.method)) {
    return ReplyApiError(connection,
                         {.status = 405, .message = StrCat(head.path, ": method not allowed")});
  }
  if (!CheckApiAccess(context_, connection, head, route->operation)) return;
  const auto encoding = http::ParseContentEncoding(head.Header("Content-Encoding"));
  if (!encoding) {
    return ReplyApiError(connection,
                         {.status = 415, .message = "Content-Encoding: expected gzip or deflate"});
  }
  if (*encoding == http::Encoding::kIdentity) {
    return HandleApi(connection, head, *route, std::move(body));
  }
  http::DecompressingCall::Start(connection, std::move(body),
                                 [this, &connection, head, route](http::RequestBody plain) {
                                   HandleApi(connection, head, *route, std::move(plain));
                                 });
}

}  // namespace nereid::openai
