// To add a route, add a line to the table and a file with its function.
#include "host/frontend/openai/routes/api_routes.h"

#include <optional>

#include "host/frontend/http/request_access.h"
#include "host/frontend/openai/fields/field_table.h"
#include "host/frontend/openai/routes/messages_format.h"
#include "host/frontend/openai/routes/route_support.h"

namespace nereid::openai {
namespace {

using enum http::Method;

constexpr ApiRoute kRoutes[] = {
    {kPost, "/v1/chat/completions", ApiOperation::kInfer, &HandleChatCompletions,
     "the next message of a conversation", kChat},
    {kPost, "/v1/completions", ApiOperation::kInfer, &HandleCompletions,
     "texts that continue prompts", kCompletions},
    {kPost, "/v1/chat/completions/render", ApiOperation::kInfer, &HandleChatRender,
     "the token ids of a conversation", kChat},
    {kPost, "/v1/completions/render", ApiOperation::kInfer, &HandleCompletionRender,
     "the token ids of prompts", kCompletions},
    {kPost, "/v1/messages", ApiOperation::kInfer, &HandleMessages,
     "the next message of a conversation, in Anthropic's form", kMessages},
    {kPost, "/v1/messages/count_tokens", ApiOperation::kInfer, &HandleCountTokens,
     "the number of tokens of a conversation, in Anthropic's form", kMessages},
    {kPost, "/v1/responses", ApiOperation::kInfer, &HandleResponses,
     "the answer to a conversation, which is stored", kResponses},
    {kPost, "/v1/responses/input_tokens", ApiOperation::kInfer, &HandleResponseTokens,
     "the number of tokens of a conversation", kResponses},
    {kGet, "/v1/responses/", ApiOperation::kInfer, &HandleStoredResponse, "a stored response"},
    {kDelete, "/v1/responses/", ApiOperation::kInfer, &HandleDeleteResponse,
     "removes a stored response"},
    {kPost, "/v1/responses/", ApiOperation::kInfer, &HandleCancelResponse,
     "cancels a response that is made in the background, which there are none of", 0, "/cancel"},
    {kPost, "/tokenize", ApiOperation::kInfer, &HandleTokenize,
     "the token ids of a text or a conversation", kTokenize},
    {kPost, "/detokenize", ApiOperation::kInfer, &HandleDetokenize, "the text of token ids",
     kDetokenize},
    {kPost, "/apply-template", ApiOperation::kInfer, &HandleApplyTemplate,
     "the prompt that a conversation becomes, as text", kChat},
    {kPost, "/v1/load_lora_adapter", ApiOperation::kLoadModel, &HandleLoadAdapter,
     "loads a LoRA adapter of a model that runs", kLoadAdapter},
    {kPost, "/v1/unload_lora_adapter", ApiOperation::kUnloadModel, &HandleUnloadAdapter,
     "unloads a LoRA adapter", kUnloadAdapter},
    {kGet, "/v1/models", ApiOperation::kServerMetadata, &HandleModels, "the language models"},
    {kGet, "/v1/models/", ApiOperation::kServerMetadata, &HandleModel, "one language model"},
    {kGet, "/health", ApiOperation::kServerHealth, &HandleHealth, "200 if the server is ready"},
    {kGet, "/ping", ApiOperation::kServerHealth, &HandleHealth, "200 if the server is ready"},
    {kGet, "/openapi.json", ApiOperation::kDescribeApi, &HandleOpenApi,
     "the description of these routes"},
    {kGet, "/requests", ApiOperation::kListRequests, &HandleRequests,
     "ids and counts of the requests in flight"},
    {kPost, "/requests/", ApiOperation::kCancelRequest, &HandleCancelRequest,
     "cancels a request in flight", 0, "/cancel"},
    {kGet, "/metrics", ApiOperation::kReadMetrics, &HandleMetrics, "metrics, for Prometheus"},
    {kGet, "/version", ApiOperation::kServerMetadata, &HandleVersion, "the version of Nereid"},
};

bool HasPath(const ApiRoute& route, std::string_view path) {
  if (!route.path.ends_with('/')) return path == route.path;
  return path.size() > route.path.size() + route.suffix.size() && path.starts_with(route.path) &&
         path.ends_with(route.suffix);
}

}  // namespace

std::span<const ApiRoute> ApiRoutes() {
  return kRoutes;
}

bool IsServed(const ApiContext& context, const ApiRoute& route) {
  return context.serves_metrics || route.operation != ApiOperation::kReadMetrics;
}

bool AcceptsMethod(const ApiRoute& route, http::Method method) {
  return method == route.method ||
         (method == http::Method::kHead && route.method == http::Method::kGet);
}

const ApiRoute* FindApiRoute(http::Method method, std::string_view path) {
  if (path.starts_with("/v2/")) return nullptr;  // KServe's routes need no search
  const ApiRoute* found = nullptr;
  for (const ApiRoute& route : kRoutes) {
    if (!HasPath(route, path)) continue;
    if (AcceptsMethod(route, method)) return &route;
    found = &route;
  }
  return found;
}

ErrorForm ErrorFormOf(std::string_view path) {
  return path.starts_with("/v1/messages") ? &MessagesErrorJson : &ErrorJson;
}

void ReplyApiError(HttpConnection& connection, const ApiError& error, ErrorForm form) {
  std::string_view headers;
  if (error.status == 401) headers = "WWW-Authenticate: Bearer\r\n";
  if (error.status == 429 || error.status == 503) headers = "Retry-After: 1\r\n";
  connection.Reply({.status = error.status, .extra_headers = headers}, form(error));
}

bool CheckApiAccess(const ApiContext& context, HttpConnection& connection, const RequestHead& head,
                    ApiOperation operation, std::string_view model) {
  const ApiCallerOf caller(connection, head);
  const ErrorForm form = ErrorFormOf(head.path);
  const AccessControl& access = context.kserve.access;
  const std::optional<Denial> denial = model.empty() ? access.Authenticate(caller, operation)
                                                     : access.Check(caller, operation, model);
  if (!denial) return true;
  switch (denial->reason) {
    case Denial::Reason::kRestricted:
      ReplyApiError(
          connection,
          {.status = 403,
           .message = StrCat("this API is restricted, expecting header '", denial->message, "'")},
          form);
      break;
    case Denial::Reason::kNoKey:
      ReplyApiError(connection,
                    {.status = 401, .message = denial->message, .code = "invalid_api_key"}, form);
      break;
    default:
      ReplyApiError(connection, {.status = 403, .message = denial->message}, form);
  }
  return false;
}

}  // namespace nereid::openai
