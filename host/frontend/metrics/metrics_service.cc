// One path, one method.
#include "host/frontend/metrics/metrics_service.h"

#include "host/frontend/http/calls/reply.h"
#include "host/log.h"

namespace nereid::http {

void MetricsService::Handle(Connection& connection, const RequestHead& head, Body) {
  LogVerbose("HTTP request: ", static_cast<int>(head.method), " ", head.path);
  if (head.method != Method::kGet) {
    connection.Reply({.status = 405}, ErrorBody("Method Not Allowed"));
    return;
  }
  if (head.path != "/metrics" && head.path != "/metrics/") {
    connection.Reply({.status = 404}, ErrorBody("Not Found"));
    return;
  }
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
