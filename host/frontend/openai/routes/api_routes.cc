// To add a route, add a line to the table and a file with its function.
#include "host/frontend/openai/routes/api_routes.h"

#include <optional>

#include "host/frontend/http/request_access.h"

namespace nereid::openai {
namespace {

using enum http::Method;

constexpr ApiRoute kRoutes[] = {
    {kPost, "/v1/chat/completions", ApiOperation::kInfer, &HandleChatCompletions,
     "the next message of a conversation"},
    {kPost, "/v1/completions", ApiOperation::kInfer, &HandleCompletions,
     "texts that continue prompts"},
    {kGet, "/v1/models", ApiOperation::kServerMetadata, &HandleModels, "the language models"},
    {kGet, "/v1/models/", ApiOperation::kServerMetadata, &HandleModel, "one language model"},
    {kGet, "/health", ApiOperation::kServerHealth, &HandleHealth, "200 if the server is ready"},
    {kGet, "/ping", ApiOperation::kServerHealth, &HandleHealth, "200 if the server is ready"},
    {kGet, "/version", ApiOperation::kServerMetadata, &HandleVersion, "the server's version"},
};

bool HasPath(const ApiRoute& route, std::string_view path) {
  if (!route.path.ends_with('/')) return path == route.path;
  return path.size() > route.path.size() && path.starts_with(route.path);
}

}  // namespace

std::span<const ApiRoute> ApiRoutes() {
  return kRoutes;
}

const ApiRoute* FindApiRoute(http::Method method, std::string_view path) {
  const ApiRoute* found = nullptr;
  for (const ApiRoute& route : kRoutes) {
    if (!HasPath(route, path)) continue;
    if (route.method == method) return &route;
    found = &route;
  }
  return found;
}

void ReplyApiError(HttpConnection& connection, const ApiError& error) {
  std::string_view headers;
  if (error.status == 401) headers = "WWW-Authenticate: Bearer\r\n";
  if (error.status == 429 || error.status == 503) headers = "Retry-After: 1\r\n";
  connection.Reply({.status = error.status, .extra_headers = headers}, ErrorJson(error));
}

bool CheckApiAccess(const ApiContext& context, HttpConnection& connection, const RequestHead& head,
                    ApiOperation operation, std::string_view model) {
  const http::RequestCaller caller(connection, head);
  const AccessControl& access = context.kserve.access;
  const std::optional<Denial> denial = model.empty() ? access.Authenticate(caller, operation)
                                                     : access.Check(caller, operation, model);
  if (!denial) return true;
  switch (denial->reason) {
    case Denial::Reason::kRestricted:
      ReplyApiError(connection, {.status = 403,
                                 .message = StrCat("this API is restricted, expecting header '",
                                                   denial->message, "'")});
      break;
    case Denial::Reason::kNoKey:
      ReplyApiError(connection,
                    {.status = 401, .message = denial->message, .code = "invalid_api_key"});
      break;
    default:
      ReplyApiError(connection, {.status = 403, .message = denial->message});
  }
  return false;
}

}  // namespace nereid::openai
