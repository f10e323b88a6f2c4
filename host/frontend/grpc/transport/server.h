// gRPC on a port: the connections of its loops, and their end. [owner thread, where not said]
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "host/frontend/grpc/grpc_options.h"
#include "host/frontend/grpc/method_table.h"
#include "host/frontend/grpc/transport/connection.h"
#include "host/frontend/http/transport/port.h"
#include "host/frontend/tls/tls_context.h"
#include "nereid/status.h"

namespace nereid::rpc {

class Server final : private http::PortUser {
 public:
  // Listens and serves from now on. Both outlive the server.
  static Result<std::unique_ptr<Server>> Start(const GrpcOptions& options,
                                               const MethodTable& methods);
  // Stops with no patience, unless Stop was called before.
  ~Server();

  // 0 for a unix socket.
  uint16_t port() const { return port_->port(); }
  // Takes no new call, lets those under way finish for `patience`, then cancels them; returns when
  // no service has a call any more.
  void Stop(std::chrono::milliseconds patience);

 private:
  // What is a loop's own.
  struct Clients {
    std::unordered_map<Connection*, std::unique_ptr<Connection>> connections;
    bool is_stopping = false;
  };

  Server(const GrpcOptions& options, const MethodTable& methods) : shared_{options, methods} {}
  bool Admit(int) override { return true; }
  void Adopt(size_t loop, int fd) override;
  bool IsIdle() const;
  template <typename Visit>
  void ForEachConnection(const Visit& visit);

  Shared shared_;
  std::unique_ptr<TlsContext> tls_;
  std::unique_ptr<http::Port> port_;
  std::vector<Clients> clients_;  // by loop
  bool is_stopped_ = false;
};

}  // namespace nereid::rpc
