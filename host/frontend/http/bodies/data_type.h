// The protocol's names of data types, and their element sizes. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "triton/core/tritonserver.h"

namespace nereid::http {

// Returns TRITONSERVER_TYPE_INVALID for an unknown name.
TRITONSERVER_DataType ParseDataType(std::string_view name);
std::string_view DataTypeName(TRITONSERVER_DataType datatype);
// Returns the size of an element in bytes, and 0 for BYTES, whose elements differ in size.
size_t ElementBytes(TRITONSERVER_DataType datatype);

// Returns the product of the dimensions, or none if it exceeds int64 or a dimension is negative.
std::optional<int64_t> ElementCount(std::span<const int64_t> shape);

}  // namespace nereid::http
