// The ModelInfer call: one request, one response.
#pragma once

#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/infer_context.h"

namespace nereid {

// [loop thread] The returned handler owns itself; null when the call is finished already.
CallHandler* StartUnaryInfer(const InferContext& context, Call& call, const Slice& request);

}  // namespace nereid
