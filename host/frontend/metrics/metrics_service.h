// GET /metrics on its own port: the core's metrics in Prometheus text format. [loop thread]
#pragma once

#include "host/frontend/access_control.h"
#include "host/frontend/frontend_state.h"
#include "host/frontend/http/transport/http_service.h"
#include "nereid/server.h"

namespace nereid::http {

class MetricsService final : public HttpService {
 public:
  // Both references outlive the service.
  MetricsService(const Server& server, FrontendState& state)
      : server_(server), state_(state), access_(state.access, RestrictedApis()) {}

  void Handle(HttpConnection& connection, const RequestHead& head, RequestBody&& body) override;
  bool AwaitsBody(const HttpConnection&, const RequestHead&) override { return false; }

 private:
  const Server& server_;
  FrontendState& state_;
  const AccessControl access_;
};

}  // namespace nereid::http
