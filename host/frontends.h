// The server's ports: starts those that the options enable, drains and closes them. [main thread]
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "host/frontend/frontend_state.h"
#include "host/frontend/grpc/grpc_server.h"
#include "host/frontend/http/kserve_service.h"
#include "host/frontend/http/transport/http_server.h"
#include "host/frontend/metrics/metrics_service.h"
#include "host/frontend/model_demand.h"
#include "host/frontend/openai/access_log.h"
#include "host/options.h"
#include "host/reload_watch.h"
#include "nereid/server.h"
#include "nereid/status.h"

namespace nereid {

class Frontends {
 public:
  using Clock = std::chrono::steady_clock;

  // Opens and closes each enabled port, so that one in use is reported before models are loaded.
  // UNAVAILABLE names the flag that chooses another port.
  static Status CheckPorts(const Options& options);
  // `server` outlives the object. Every enabled port listens when this returns Ok.
  static Result<std::unique_ptr<Frontends>> Start(const Server& server, const Options& options);
  ~Frontends();

  // First part of the shutdown, before the core stops: HTTP ports accept no new clients, and this
  // waits for their requests in flight. Connections that served sequence requests stay open; the
  // gRPC port is unaffected.
  void DrainHttp(Clock::time_point deadline);
  // Second part, after the core stops: ends every port. Unsent responses have until `deadline`,
  // then the remaining calls are cancelled. Returns and logs their number.
  size_t End(Clock::time_point deadline);

  // True if no request and no model load is in flight. Only then may the object be destroyed.
  bool IsIdle() const {
    for (const HttpPort& port : http_ports_) {
      if (port.kserve->num_calls() != 0) return false;
    }
    return grpc_ == nullptr || grpc_->num_calls() == 0;
  }

  // The ports that were opened; 0 for one that is not enabled.
  uint16_t http_port() const { return http_ports_.empty() ? 0 : http_ports_[0].server->port(); }
  uint16_t grpc_port() const { return grpc_ == nullptr ? 0 : grpc_->port(); }
  uint16_t metrics_port() const { return metrics_ == nullptr ? 0 : metrics_->port(); }

 private:
  Frontends(const Server& server, const Options& options);
  // A port that serves the inference protocol, at its own paths or at those of a cloud platform.
  struct HttpPort {
    std::unique_ptr<http::HttpService> service;
    http::KServeService* kserve;  // part of `service`
    std::unique_ptr<http::HttpServer> server;
    const char* protocol;  // name in log lines
    std::string address;
  };

  Status StartHttp(const Options& options);
  Status StartSageMaker(const Options& options);
  Status StartVertexAi(const Options& options);
  Status Listen(std::unique_ptr<http::HttpService> service, http::KServeService* kserve,
                http::HttpServerOptions config, const char* protocol);
  static void WaitForClients(const HttpPort& port, Clock::time_point deadline);
  Status StartGrpc(const Options& options);
  Status StartMetrics(const Options& options);
  Status ReadApiKeys(const std::string& path);
  void ReopenLogOnHangup(const std::string& path);
  void LogOpenPorts(const Options& options) const;

  const Server& server_;
  std::shared_ptr<ApiKeyFile> api_keys_;  // null: no keys
  FrontendState state_;
  std::unique_ptr<openai::AccessLog> access_log_;  // null: there is none
  std::unique_ptr<ModelDemand> demand_;            // null: no model is loaded on demand
  // Services are declared before the servers that call them.
  std::unique_ptr<http::MetricsService> metrics_service_;
  std::vector<HttpPort> http_ports_;
  std::unique_ptr<http::HttpServer> metrics_;
  std::unique_ptr<GrpcServer> grpc_;
  ReloadWatch reload_;  // declared last, because it uses the members above
};

}  // namespace nereid
