// The ModelStreamInfer call: requests in, responses out, both at their own pace.
#pragma once

#include "host/frontend/grpc/call.h"
#include "host/frontend/grpc/infer_context.h"

namespace nereid {

// [loop thread] The returned handler owns itself.
CallHandler* StartStreamInfer(const InferContext& context, Call& call);

}  // namespace nereid
