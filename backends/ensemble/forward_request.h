// Copies what a client's request says beside its tensors onto a request to a step. [any thread]
#pragma once

#include "nereid/infer_request.h"
#include "triton/core/tritonbackend.h"

namespace nereid::ensemble {

// Whether there is anything to copy.
bool HasAttributes(TRITONBACKEND_Request* client);
// Id, correlation id, sequence flags, priority, timeout and parameters.
Status ForwardAttributes(TRITONBACKEND_Request* client, InferRequest& target);

}  // namespace nereid::ensemble
