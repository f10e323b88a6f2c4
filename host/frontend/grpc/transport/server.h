// A listening socket, its event loops and their connections. [owner thread]
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "host/frontend/grpc/grpc_options.h"
#include "host/frontend/grpc/method_table.h"
#include "host/frontend/grpc/transport/connection.h"
#include "host/frontend/http/transport/event_loop.h"
#include "host/frontend/tls/tls_context.h"
#include "nereid/status.h"

namespace nereid::rpc {

class Server {
 public:
  // Listens and serves from now on. Both outlive the server.
  static Result<std::unique_ptr<Server>> Start(const GrpcOptions& options,
                                               const MethodTable& methods);
  // Stops with no patience, unless Stop was called before.
  ~Server();

  // 0 for a unix socket.
  uint16_t port() const { return port_; }
  // Takes no new call, lets those under way finish for `patience`, then cancels them; returns when
  // no service has a call any more.
  void Stop(std::chrono::milliseconds patience);

 private:
  // A loop and what is its own.
  struct Worker {
    std::unique_ptr<http::EventLoop> loop;
    std::unordered_map<Connection*, std::unique_ptr<Connection>> connections;
    bool is_stopping = false;
  };

  Server(const GrpcOptions& options, const MethodTable& methods)
      : options_(options), shared_{options, methods} {}
  Status Listen();
  Status ListenAtPort();
  Status ListenAtPath(const std::string& path);
  Status StartWorkers();
  void OnAcceptable();
  void Adopt(Worker& worker, int fd);
  static void OnAcceptEvent(int fd, short what, void* self);
  bool IsIdle() const;
  template <typename Visit>
  void ForEachConnection(const Visit& visit);

  const GrpcOptions& options_;
  Shared shared_;
  std::unique_ptr<TlsContext> tls_;
  int listen_fd_ = -1;
  uint16_t port_ = 0;
  std::string unix_path_;
  event* accept_event_ = nullptr;
  std::vector<std::unique_ptr<Worker>> workers_;
  size_t next_worker_ = 0;  // first loop only
  bool is_stopped_ = false;
};

}  // namespace nereid::rpc
