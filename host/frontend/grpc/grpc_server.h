// The gRPC endpoint: inference.GRPCInferenceService, grpc.health.v1.Health and reflection over one
// listener. Started and stopped by main.cc; serves on threads of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "host/frontend/grpc/grpc_options.h"
#include "nereid/server.h"
#include "nereid/status.h"

namespace nereid {

// [any thread, one at a time]
class GrpcServer {
 public:
  // Listens when it returns. `server` outlives the object.
  static Result<std::unique_ptr<GrpcServer>> Start(const Server& server, GrpcOptions options);
  // Stops with no patience, unless Stop was called before.
  ~GrpcServer();

  // The port it listens on; 0 for a unix socket.
  uint16_t port() const;
  // Loads, unloads and the like that still run, their callers gone or not. While there are any the
  // object must not be destroyed: it would wait for them.
  size_t num_calls() const;
  // Takes no new call, lets the running ones finish for `deadline`, then cancels them; returns when
  // no caller is left. Call it before the core is stopped.
  void Stop(std::chrono::milliseconds deadline);

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nereid
