// Shows the tensors of a request or a response to its trace, where the trace asks for tensors. [the
// thread that holds the request or response]
#pragma once

#include "triton/core/tritonserver.h"

namespace nereid {

class InferRequest;
class InferResponse;
class InferenceTrace;

// As the backend sees them. Data in several pieces is copied together for the call.
void TraceInputs(InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity,
                 const InferRequest& request);
void TraceOutputs(InferenceTrace* trace, const InferResponse& response);

}  // namespace nereid
