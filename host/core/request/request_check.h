// Checks a request's inputs against the model's plan and works out what the backend sees: batch
// size, shapes, byte sizes. Called by InferRequest::Prepare. [client thread]
#pragma once

#include <span>
#include <string>

#include "nereid/status.h"
#include "request/request_plan.h"
#include "request/tensor.h"

namespace nereid {

// Fills spec_index, shape and byte_size of every input and *batch_size. `prefix` begins messages
// about the request.
Status CheckInputs(const RequestPlan& plan, const std::string& prefix,
                   std::span<InputTensor> inputs, int64_t* batch_size);

}  // namespace nereid
