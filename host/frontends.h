// The ports of the server: starts those that the options ask for, drains and closes them. [main
// thread]
#pragma once

#include <chrono>
#include <memory>
#include <vector>

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
  using Clock = std::chrono::steady_clock;

  // `server` outlives the object. When it returns Ok, every port listens.
  static Result<std::unique_ptr<Frontends>> Start(const Server& server, const Options& options);

  // The stop, in two parts with the core's between them. First HTTP takes no client any more, and
  // its requests in flight are waited for; connections that had requests of sequences stay, and
  // the gRPC port as it is.
  void DrainHttp(Clock::time_point deadline);
  // Then every port ends: answers that are not yet sent have until `deadline`, what still runs is
  // cancelled.
  void End(Clock::time_point deadline);

  // True when no model holds a request and no load runs any more: only then may the object be
  // destroyed.
  bool IsIdle() const {
    for (const HttpPort& port : http_ports_) {
      if (port.kserve->num_calls() != 0) return false;
    }
    return grpc_ == nullptr || grpc_->num_calls() == 0;
  }

 private:
  Frontends(const Server& server, const Options& options);
  // A port on which the inference protocol is spoken, at its own paths or at a platform's.
  struct HttpPort {
    std::unique_ptr<http::Service> service;
    http::KServeService* kserve;  // within `service`
    std::unique_ptr<http::HttpServer> server;
    const char* protocol;  // as the log names it
  };

  Status StartHttp(const Options& options);
  Status StartSageMaker(const Options& options);
  Status StartVertexAi(const Options& options);
  Status Listen(std::unique_ptr<http::Service> service, http::KServeService* kserve,
                const http::ServerConfig& config, const char* protocol);
  static void WaitForClients(const HttpPort& port, Clock::time_point deadline);
  Status StartGrpc(const Options& options);
  Status StartMetrics(const Options& options);

  const Server& server_;
  FrontendState state_;
  // Services before the servers that call them.
  std::unique_ptr<http::MetricsService> metrics_service_;
  std::vector<HttpPort> http_ports_;
  std::unique_ptr<http::HttpServer> metrics_;
  std::unique_ptr<GrpcServer> grpc_;
};

}  // namespace nereid
