// What an operator sees and does: GET /requests, POST /requests/{id}/cancel and GET /metrics.
#include <chrono>
#include <string>
#include <utility>

#include "host/frontend/frontend_state.h"
#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/openai/routes/api_routes.h"

namespace nereid::openai {
namespace {

constexpr std::string_view kPrefix = "/requests/";
constexpr std::string_view kSuffix = "/cancel";
constexpr size_t kMaxListed = 200;

// Stands for all models where a right is needed for every one.
constexpr std::string_view kAllModels = "*";

void AppendMember(std::string& json, std::string_view name, std::string_view text) {
  json += StrCat(",\"", name, "\":");
  http::AppendLossyJsonString(json, text);
}

void AppendRequest(std::string& json, const RunningRequests::Request& request,
                   RunningRequests::Clock::time_point now) {
  using Milliseconds = std::chrono::milliseconds;
  const auto age_ms = std::chrono::duration_cast<Milliseconds>(now - request.start).count();
  json += StrCat("{\"seconds\":", static_cast<double>(age_ms) / 1000,
                 ",\"prompt_tokens\":", request.prompt_tokens,
                 ",\"output_tokens\":", request.output_tokens);
  AppendMember(json, "id", request.id);
  AppendMember(json, "model", request.model);
  AppendMember(json, "route", request.route);
  json += '}';
}

}  // namespace

void HandleRequests(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                    RequestBody) {
  if (!CheckApiAccess(context, connection, head, ApiOperation::kListRequests, kAllModels)) return;
  const auto now = RunningRequests::Clock::now();
  std::string json = StrCat("{\"num_requests\":", context.running.size(), ",\"requests\":[");
  bool is_first = true;
  for (const RunningRequests::Request& request : context.running.List(kMaxListed)) {
    if (!std::exchange(is_first, false)) json += ',';
    AppendRequest(json, request, now);
  }
  connection.Reply({}, json + "]}");
}

void HandleCancelRequest(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                         RequestBody) {
  if (!CheckApiAccess(context, connection, head, ApiOperation::kCancelRequest, kAllModels)) return;
  std::string_view id = head.path.substr(kPrefix.size());
  id.remove_suffix(kSuffix.size());
  if (context.running.Cancel(id)) return connection.Reply({}, "{}");
  ReplyApiError(connection,
                {.status = 404,
                 .message = StrCat("request '", id.substr(0, 128), "' is not in flight"),
                 .code = "request_not_found"});
}

void HandleMetrics(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                   RequestBody) {
  if (!CheckApiAccess(context, connection, head, ApiOperation::kReadMetrics, kAllModels)) return;
  context.kserve.state.request_memory.UpdateMetrics();
  const Result<MetricsPage> page = context.kserve.server.Metrics();
  const Result<std::string_view> text =
      page.ok() ? page->PrometheusText() : Result<std::string_view>(page.status());
  if (!text.ok()) return ReplyApiError(connection, ToApiError(text.status()));
  connection.Reply({.content_type = "text/plain; charset=utf-8"}, *text);
}

}  // namespace nereid::openai
