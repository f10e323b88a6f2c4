// Checks a request's inputs against the model's schema and computes batch size, shapes and byte
// sizes for the backend. Called by InferRequest::Prepare. [client thread]
#pragma once

#include <span>
#include <string>

#include "host/core/request/request_schema.h"
#include "host/core/request/tensor.h"
#include "nereid/status.h"

namespace nereid::core {

// "[request id: x] ", the prefix of messages about a request.
std::string RequestLogPrefix(const std::string& request_id);

// Sets spec_index, shape and byte_size of each input, and *batch_size. INVALID_ARG, with Triton's
// messages, if the inputs do not match the schema.
Status CheckInputs(const RequestSchema& schema, const std::string& request_id,
                   std::span<InputTensor> inputs, int64_t* batch_size);

}  // namespace nereid::core
