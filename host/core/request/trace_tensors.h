// Reports the tensors of a request or a response to its trace, if the trace has the level TENSORS.
// [the thread that owns the request or response]
#pragma once

#include "triton/core/tritonserver.h"

namespace nereid::core {

class InferRequest;
class InferResponse;
class InferenceTrace;

// Reports the tensors as the backend sees them. Data in several buffers is joined for the call.
void TraceInputs(InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity,
                 const InferRequest& request);
void TraceOutputs(InferenceTrace* trace, const InferResponse& response);

}  // namespace nereid::core
