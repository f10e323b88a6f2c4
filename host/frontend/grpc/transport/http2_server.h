// gRPC transport on one port: listens, distributes connections to event loops and stops them.
// [owner thread, unless stated otherwise]
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/grpc_options.h"
#include "host/frontend/grpc/transport/http2_connection.h"
#include "nereid/status.h"
#include "net/socket_server.h"
#include "net/tls_context.h"

namespace nereid::grpc {

class Http2Server final : private net::ConnectionHandler {
 public:
  // Listens and serves once this returns. Both references outlive the server.
  static Result<std::unique_ptr<Http2Server>> Start(const GrpcOptions& options,
                                                    const MethodTable& methods);
  // Stops with a timeout of 0 unless Stop was called before, and waits until no service has a call
  // left.
  ~Http2Server();

  // 0 for a Unix domain socket.
  uint16_t port() const { return socket_server_->port(); }
  // [any thread] Reads the files of TLS again, see TlsContext::Reload. Requires TLS.
  Status ReloadTls() { return tls_->Reload(); }
  // [any thread] Number of calls that their services have not finished.
  size_t num_calls() const { return context_.num_calls.load(); }
  // Accepts no new calls, waits up to `timeout` for calls in flight, then cancels them and waits
  // two seconds at most for their services. Returns how many it has cancelled.
  size_t Stop(std::chrono::milliseconds timeout);

 private:
  // Connections of one event loop; used only on its thread.
  struct LoopState {
    std::unordered_map<Http2Connection*, std::unique_ptr<Http2Connection>> connections;
    bool is_stopping = false;
  };

  Http2Server(const GrpcOptions& options, const MethodTable& methods)
      : context_{options, methods} {}
  bool Admit(int) override { return socket_server_->num_open() < context_.options.max_connections; }
  void AddConnection(size_t loop, int fd) override;
  bool IsIdle() const;
  void WaitUntilIdle(std::chrono::milliseconds timeout) const;
  template <typename Visit>
  void ForEachConnection(const Visit& visit);

  TransportContext context_;
  std::unique_ptr<net::TlsContext> tls_;
  std::unique_ptr<net::SocketServer> socket_server_;
  std::vector<LoopState> loop_states_;  // one entry per loop
  bool is_stopped_ = false;
};

}  // namespace nereid::grpc
