// A listening port, its event loops and their connections. Accepts on the first loop and deals the
// sockets out in turn, so that every loop has its share. [owner thread]
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/frontend/http/transport/event_loop.h"
#include "host/frontend/http/transport/limits.h"
#include "host/frontend/http/transport/loop_connections.h"
#include "host/frontend/http/transport/service.h"
#include "host/frontend/tls/tls_context.h"
#include "nereid/status.h"

namespace nereid::http {

// At most 8. More loops than cores would only add wake-ups: connections of one loop share them.
int OneLoopACore();

struct ServerConfig {
  std::string address = "0.0.0.0";
  uint16_t port = 8000;  // 0 takes a free one
  bool reuse_port = false;
  int num_threads = OneLoopACore();
  std::optional<TlsOptions> tls;
  Limits limits;
};

class HttpServer {
 public:
  // Listens and serves from now on. `service` outlives the server.
  static Result<std::unique_ptr<HttpServer>> Start(const ServerConfig& config, Service& service);
  // Drops what is left and joins the loops. No call may still be in flight: its model would report
  // to a loop that is gone.
  ~HttpServer();

  uint16_t port() const { return port_; }
  size_t num_connections() const { return num_open_.load(); }

  // Accepts nobody any more and closes idle connections; requests in flight go on to their end.
  void BeginDrain();
  // True when every connection has ended before `deadline`.
  bool WaitUntilIdle(std::chrono::steady_clock::time_point deadline);
  // Drops every client, which cancels their calls.
  void CloseConnections();

 private:
  struct Worker {
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<LoopConnections> connections;
  };

  HttpServer(const ServerConfig& config, Service& service) : config_(config), service_(service) {}
  Status Listen();
  Status StartWorkers();
  void OnAcceptable();
  void Deal(int fd);
  void TrimWhenQuiet();
  static void OnAcceptEvent(int fd, short what, void* self);

  const ServerConfig config_;
  Service& service_;
  std::unique_ptr<TlsContext> tls_;  // null: plain HTTP
  uint16_t port_ = 0;
  int listen_fd_ = -1;
  event* accept_event_ = nullptr;
  std::vector<Worker> workers_;
  size_t next_worker_ = 0;  // first loop only, as the two below
  uint64_t num_requests_seen_ = 0;
  bool is_trimmed_ = true;
  std::atomic<size_t> num_open_{0};
  bool is_draining_ = false;
};

}  // namespace nereid::http
