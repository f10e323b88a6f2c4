// HTTP on a port: the connections of its loops, their number, their end. [owner thread, where not
// said]
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/frontend/http/transport/limits.h"
#include "host/frontend/http/transport/loop_connections.h"
#include "host/frontend/http/transport/port.h"
#include "host/frontend/http/transport/service.h"
#include "host/frontend/tls/tls_context.h"
#include "nereid/status.h"

namespace nereid::http {

struct ServerConfig {
  std::string address = "0.0.0.0";
  uint16_t port = 8000;  // 0 takes a free one
  bool reuse_port = false;
  int num_threads = OneLoopACore();
  std::optional<TlsOptions> tls;
  Limits limits;
};

class HttpServer final : private PortUser {
 public:
  // Listens and serves from now on. `service` outlives the server.
  static Result<std::unique_ptr<HttpServer>> Start(const ServerConfig& config, Service& service);
  // Drops what is left and joins the loops. No call may still be in flight: its model would report
  // to a loop that is gone.
  ~HttpServer();

  uint16_t port() const { return port_->port(); }
  size_t num_connections() const { return port_->num_open(); }

  // Accepts nobody any more and closes idle connections; requests in flight go on to their end.
  // Connections that had requests of sequences are kept until EndDrain.
  void BeginDrain();
  void EndDrain();
  // [any thread] Those of num_connections() that are kept for sequences.
  size_t num_kept() const;
  // True when every connection has ended before `deadline`.
  bool WaitUntilIdle(std::chrono::steady_clock::time_point deadline);
  // Drops every client, which cancels their calls.
  void CloseConnections();

 private:
  HttpServer(const ServerConfig& config, Service& service) : config_(config), service_(service) {}
  Status Open();
  bool Admit(int fd) override;
  void Adopt(size_t loop, int fd) override;
  // What a loop has seen of the requests of all.
  struct Quiet {
    uint64_t num_requests_seen = 0;
    bool is_trimmed = true;
  };
  void TrimWhenQuiet(Quiet& quiet);
  // `visit` runs on the loop of each.
  void ForEachLoop(void (LoopConnections::*visit)());

  const ServerConfig config_;
  Service& service_;
  std::unique_ptr<TlsContext> tls_;  // null: plain HTTP
  std::unique_ptr<Port> port_;
  std::vector<std::unique_ptr<LoopConnections>> connections_;  // by loop
  bool is_draining_ = false;
};

}  // namespace nereid::http
