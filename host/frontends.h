// The ports of the server: starts those that the options ask for, drains and closes them. [main
// thread]
#pragma once

#include <chrono>
#include <memory>

#include "host/frontend/frontend_state.h"
#include "host/frontend/grpc/grpc_server.h"
#include "host/frontend/http/kserve_service.h"
#include "host/frontend/http/transport/http_server.h"
#include "host/frontend/metrics/metrics_service.h"
#include "host/options.h"
#include "nereid/server.h"
#include "nereid/status.h"

namespace nereid {

class Frontends {
 public:
  // `server` outlives the object. When it returns Ok, every port listens.
  static Result<std::unique_ptr<Frontends>> Start(const Server& server, const Options& options);

  // Refuses new clients, lets requests in flight finish until `deadline`, then cancels the rest.
  void Drain(std::chrono::steady_clock::time_point deadline);

  // True when no model holds a request and no load runs any more: only then may the object be
  // destroyed.
  bool IsIdle() const {
    return (http_service_ == nullptr || http_service_->num_calls() == 0) &&
           (grpc_ == nullptr || grpc_->num_calls() == 0);
  }

 private:
  Frontends(const Server& server, const Options& options);
  Status StartHttp(const Options& options);
  Status StartGrpc(const Options& options);
  Status StartMetrics(const Options& options);

  const Server& server_;
  FrontendState state_;
  // Services before the servers that call them.
  std::unique_ptr<http::KServeService> http_service_;
  std::unique_ptr<http::MetricsService> metrics_service_;
  std::unique_ptr<http::HttpServer> http_;
  std::unique_ptr<http::HttpServer> metrics_;
  std::unique_ptr<GrpcServer> grpc_;
};

}  // namespace nereid
