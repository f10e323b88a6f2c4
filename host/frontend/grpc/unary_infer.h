// The ModelInfer call: one request, one response.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "infer_context.h"

namespace nereid {

// [gRPC thread] The returned call owns itself.
grpc::ServerUnaryReactor* StartUnaryInfer(const InferContext& context,
                                          const grpc::CallbackServerContext& call,
                                          const grpc::ByteBuffer& request,
                                          grpc::ByteBuffer& response);

}  // namespace nereid
