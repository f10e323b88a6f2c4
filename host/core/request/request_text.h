// A request as the verbose log shows it, in Triton's words. [whoever holds the request]
#pragma once

#include <string>

#include "host/core/request/infer_request.h"

namespace nereid {

// Whose it is, its parameters, its tensors: once it is prepared.
std::string DescribeRequest(const InferRequest& request);

}  // namespace nereid
