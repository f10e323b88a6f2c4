// The protocol's names of data types, and their sizes. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "triton/core/tritonserver.h"

namespace nereid::http {

// TRITONSERVER_TYPE_INVALID when `name` is none.
TRITONSERVER_DataType ParseDataType(std::string_view name);
std::string_view DataTypeName(TRITONSERVER_DataType datatype);
// 0 for BYTES, whose elements differ in size.
size_t ElementBytes(TRITONSERVER_DataType datatype);

// The product of the dimensions; none when it does not fit 63 bits or a dimension is negative.
std::optional<int64_t> ElementCount(std::span<const int64_t> shape);

}  // namespace nereid::http
