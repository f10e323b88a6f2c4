// Formats a traced tensor as text: its elements separated by commas. [any thread]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "triton/core/tritonserver.h"

namespace nereid {

// `data` is in host memory. The text ends with "..." if `max_chars` was reached.
std::string TensorText(TRITONSERVER_DataType datatype, std::string_view data, size_t max_chars);

}  // namespace nereid
