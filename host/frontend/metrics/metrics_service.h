// GET /metrics on its own port: the core's metrics in Prometheus text format. [loop thread]
#pragma once

#include "host/frontend/http/transport/http_service.h"
#include "nereid/server.h"

namespace nereid::http {

class MetricsService final : public HttpService {
 public:
  // `server` outlives the service.
  explicit MetricsService(const Server& server) : server_(server) {}

  void Handle(HttpConnection& connection, const RequestHead& head, RequestBody body) override;

 private:
  const Server& server_;
};

}  // namespace nereid::http
