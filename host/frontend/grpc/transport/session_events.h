// nghttp2's session of a connection, wired to it and to its streams. [loop thread]
#pragma once

#include "host/frontend/grpc/grpc_options.h"

struct nghttp2_session;

namespace nereid::rpc {

class Connection;

// With the server's settings already submitted; null when memory is short.
nghttp2_session* NewSession(Connection& connection, const GrpcOptions& options);

}  // namespace nereid::rpc
