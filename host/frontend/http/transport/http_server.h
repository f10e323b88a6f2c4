// An HTTP server on one port: admits connections, counts them and shuts them down. [owner thread,
// unless stated otherwise]
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/idle_trim.h"
#include "host/frontend/http/transport/http_request.h"
#include "host/frontend/http/transport/http_service.h"
#include "host/frontend/http/transport/loop_connections.h"
#include "nereid/status.h"
#include "net/socket_server.h"
#include "net/tls_context.h"

namespace nereid::http {

struct HttpServerOptions {
  std::string address = "0.0.0.0";
  uint16_t port = 8000;  // 0 chooses a free port
  bool reuse_port = false;
  int num_threads = net::DefaultNumLoops();
  std::optional<net::TlsOptions> tls;
  HttpLimits limits;
};

class HttpServer final : private net::ConnectionHandler {
 public:
  // Listens and serves from now on. `service` outlives the server.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                   HttpService& service);
  // Closes the remaining connections and joins the loops. No call may still be in flight, because
  // its model would report to a loop that no longer exists.
  ~HttpServer();

  uint16_t port() const { return socket_server_->port(); }
  size_t num_connections() const { return socket_server_->num_open(); }

  // [any thread] Number of requests without a complete response.
  size_t num_running() const;
  // [any thread] Reads the certificates again, for connections that are opened later. On an error
  // nothing changes. Requires TLS.
  Status ReloadTls() { return tls_->Reload(); }

  // Stops accepting and closes idle connections. Requests in flight run to completion. Connections
  // that carried requests of sequences stay open until EndDrain.
  void BeginDrain();
  void EndDrain();
  // [any thread] Number of connections that are kept open for sequences.
  size_t num_kept_open() const;
  // Returns true if every connection has closed before `deadline`.
  bool WaitUntilIdle(std::chrono::steady_clock::time_point deadline);
  // Closes every connection, which cancels its call.
  void CloseConnections();

 private:
  HttpServer(const HttpServerOptions& options, HttpService& service)
      : options_(options), service_(service) {}
  Status Open();
  bool Admit(int fd) override;
  void AddConnection(size_t loop, int fd) override;
  void TrimMemoryWhenIdle(IdleTrim& trim);
  // Calls `visit` for the connections of each loop, on that loop.
  void ForEachLoop(void (LoopConnections::*visit)());

  const HttpServerOptions options_;
  HttpService& service_;
  std::unique_ptr<net::TlsContext> tls_;  // null for plain HTTP
  std::unique_ptr<net::SocketServer> socket_server_;
  std::vector<std::unique_ptr<LoopConnections>> connections_;  // one per loop
  bool is_draining_ = false;
};

}  // namespace nereid::http
