// The gRPC endpoint: inference.GRPCInferenceService, grpc.health.v1.Health and server reflection on
// one listener. Started and stopped by frontends.cc; serves on its own threads.
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
  // The server listens when this returns. `server` outlives the object.
  static Result<std::unique_ptr<GrpcServer>> Start(const Server& server, GrpcOptions options);
  // Stops with a timeout of 0 unless Stop was called before.
  ~GrpcServer();

  // The port it listens on; 0 for a Unix domain socket.
  uint16_t port() const;
  // [any thread] Reads the certificates again, for connections that are opened later. On an error
  // nothing changes. Requires TLS.
  Status ReloadTls();
  // Number of blocking operations (loads, unloads) still running, whether or not their callers are
  // still connected, and of calls that are not finished. While it is not 0, destroying the object
  // would wait for them.
  size_t num_calls() const;
  // Accepts no new calls, waits up to `deadline` for calls in flight, then cancels them and waits
  // two seconds at most for their end. Returns how many it has cancelled. Must be called before the
  // core is stopped.
  size_t Stop(std::chrono::milliseconds deadline);

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nereid
