// GET /metrics: the core's metrics in Prometheus' text form, on a port of its own. [loop thread]
#pragma once

#include "host/frontend/http/transport/service.h"
#include "nereid/server.h"

namespace nereid::http {

class MetricsService final : public Service {
 public:
  // `server` outlives the service.
  explicit MetricsService(const Server& server) : server_(server) {}

  void Handle(Connection& connection, const RequestHead& head, Body body) override;

 private:
  const Server& server_;
};

}  // namespace nereid::http
