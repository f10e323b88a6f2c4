// The routes: the table by which the service finds them, and their functions. [loop thread]
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "host/frontend/api_operation.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/http/transport/http_request.h"
#include "host/frontend/model_demand.h"
#include "host/frontend/openai/calls/response_store.h"
#include "host/frontend/openai/calls/running_requests.h"
#include "host/frontend/openai/fields/api_error.h"
#include "host/frontend/openai/tensors/loaded_adapters.h"

namespace nereid::openai {

// What the routes of one port share. Outlives every call.
struct ApiContext {
  http::KServeContext& kserve;
  const std::atomic<bool>& is_draining;
  ResponseStore& responses;
  RunningRequests& running;
  LoadedAdapters& adapters;
  ModelDemand* const demand;   // null: no model is loaded on demand
  const bool serves_metrics;   // the port answers /metrics
  const int64_t started_s;     // Unix time
  const int32_t keep_alive_s;  // of GenerationRequest
};

struct ApiRoute {
  http::Method method;
  // A path that ends with '/' stands for all longer ones that end with `suffix`.
  std::string_view path;
  ApiOperation operation;
  void (*handle)(ApiContext& context, http::HttpConnection& connection,
                 const http::RequestHead& head, http::RequestBody body);
  std::string_view summary;
  uint16_t fields = 0;  // of RouteSet: those of its body; 0: it has none
  std::string_view suffix = {};
};

std::span<const ApiRoute> ApiRoutes();

// False for a route that the port does not serve.
bool IsServed(const ApiContext& context, const ApiRoute& route);

// A HEAD request is answered as GET is; the transport leaves the body out.
bool AcceptsMethod(const ApiRoute& route, http::Method method);
// Null if no route has this path. If one has, but not with this method, its method differs.
const ApiRoute* FindApiRoute(http::Method method, std::string_view path);

// Writes an error as JSON.
using ErrorForm = std::string (*)(const ApiError& error);

// The form of the errors of a path: Anthropic's for /v1/messages, else OpenAI's.
ErrorForm ErrorFormOf(std::string_view path);

// Answers with an error.
void ReplyApiError(http::HttpConnection& connection, const ApiError& error,
                   ErrorForm form = &ErrorJson);

// Returns false after it has answered a request that is not permitted. With an empty model, only
// what is known before the body is read is checked.
bool CheckApiAccess(const ApiContext& context, http::HttpConnection& connection,
                    const http::RequestHead& head, ApiOperation operation,
                    std::string_view model = {});

// ---- one function for each route
using http::HttpConnection;
using http::RequestBody;
using http::RequestHead;

void HandleChatCompletions(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                           RequestBody body);
void HandleCompletions(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                       RequestBody body);
void HandleMessages(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                    RequestBody body);
void HandleCountTokens(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                       RequestBody body);
void HandleResponses(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                     RequestBody body);
void HandleResponseTokens(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                          RequestBody body);
void HandleStoredResponse(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                          RequestBody body);
void HandleCancelResponse(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                          RequestBody body);
void HandleDeleteResponse(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                          RequestBody body);
void HandleModels(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                  RequestBody body);
void HandleModel(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                 RequestBody body);
void HandleHealth(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                  RequestBody body);
void HandleVersion(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                   RequestBody body);

void HandleTokenize(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                    RequestBody body);
void HandleDetokenize(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                      RequestBody body);
void HandleApplyTemplate(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                         RequestBody body);
void HandleChatRender(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                      RequestBody body);
void HandleCompletionRender(ApiContext& context, HttpConnection& connection,
                            const RequestHead& head, RequestBody body);
void HandleOpenApi(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                   RequestBody body);
void HandleRequests(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                    RequestBody body);
void HandleCancelRequest(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                         RequestBody body);
void HandleLoadAdapter(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                       RequestBody body);
void HandleUnloadAdapter(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                         RequestBody body);
void HandleMetrics(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                   RequestBody body);

}  // namespace nereid::openai
