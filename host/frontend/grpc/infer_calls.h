// Starts the inference calls: ModelInfer (one request, one response; unary_infer.cc) and
// ModelStreamInfer (a bidirectional stream of both; stream_infer.cc). [loop thread]
#pragma once

#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/infer_context.h"

namespace nereid {

// The returned handler owns itself; null if the call is already finished.
CallHandler* StartUnaryInfer(const InferContext& context, Call& call, const Slice& request);

// The returned handler owns itself.
CallHandler* StartStreamInfer(const InferContext& context, Call& call);

}  // namespace nereid
