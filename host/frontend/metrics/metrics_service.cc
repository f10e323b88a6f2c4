// See metrics_service.h.
#include "host/frontend/metrics/metrics_service.h"

#include "host/frontend/http/request_access.h"
#include "host/frontend/http/transport/http_connection.h"
#include "host/log.h"

namespace nereid::http {

void MetricsService::Handle(HttpConnection& connection, const RequestHead& head, RequestBody&&) {
  LogVerbose("HTTP request: ", static_cast<int>(head.method), " ", head.path);
  if (head.method != Method::kGet && head.method != Method::kHead) {
    connection.Reply({.status = 405}, ErrorBody("Method Not Allowed"));
    return;
  }
  if (head.path != "/metrics" && head.path != "/metrics/") {
    connection.Reply({.status = 404}, ErrorBody("Not Found"));
    return;
  }
  if (!CheckAccess(access_, connection, head, ApiOperation::kReadMetrics)) return;
  state_.request_memory.UpdateMetrics();
  const Result<MetricsPage> page = server_.Metrics();
  const Result<std::string_view> text =
      page.ok() ? page->PrometheusText() : Result<std::string_view>(page.status());
  if (text.ok()) {
    connection.Reply({.content_type = "text/plain; charset=utf-8"}, *text);
  } else {
    ReplyError(connection, text.status());
  }
}

}  // namespace nereid::http
