// The ModelStreamInfer call: requests in, responses out, both at their own pace.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "infer_context.h"

namespace nereid {

// [gRPC thread] The returned call owns itself.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StartStreamInfer(
    const InferContext& context, grpc::CallbackServerContext& call);

}  // namespace nereid
