// Checks a request's inputs against the model's plan and works out what the backend sees: batch
// size, shapes, byte sizes. Called by InferRequest::Prepare. [client thread]
#pragma once

#include <span>
#include <string>

#include "host/core/request/request_plan.h"
#include "host/core/request/tensor.h"
#include "nereid/status.h"

namespace nereid {

// "[request id: x] ", as messages about a request begin.
std::string RequestLogPrefix(const std::string& request_id);

// Fills spec_index, shape and byte_size of every input and *batch_size.
Status CheckInputs(const RequestPlan& plan, const std::string& request_id,
                   std::span<InputTensor> inputs, int64_t* batch_size);

}  // namespace nereid
