// One table of names and sizes.
#include "host/frontend/http/bodies/data_type.h"

#include <iterator>

namespace nereid::http {
namespace {

struct DataTypeInfo {
  std::string_view name;
  size_t bytes;
};

// Indexed by TRITONSERVER_DataType.
constexpr DataTypeInfo kTypes[] = {
    {"<invalid>", 0}, {"BOOL", 1}, {"UINT8", 1}, {"UINT16", 2}, {"UINT32", 4},
    {"UINT64", 8},    {"INT8", 1}, {"INT16", 2}, {"INT32", 4},  {"INT64", 8},
    {"FP16", 2},      {"FP32", 4}, {"FP64", 8},  {"BYTES", 0},  {"BF16", 2},
};
static_assert(std::size(kTypes) == TRITONSERVER_TYPE_BF16 + 1);

}  // namespace

TRITONSERVER_DataType ParseDataType(std::string_view name) {
  for (size_t i = 1; i < std::size(kTypes); ++i) {
    if (kTypes[i].name == name) return static_cast<TRITONSERVER_DataType>(i);
  }
  return TRITONSERVER_TYPE_INVALID;
}

std::string_view DataTypeName(TRITONSERVER_DataType datatype) {
  return kTypes[datatype < std::size(kTypes) ? datatype : 0].name;
}

size_t ElementBytes(TRITONSERVER_DataType datatype) {
  return kTypes[datatype < std::size(kTypes) ? datatype : 0].bytes;
}

std::optional<int64_t> ElementCount(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(count, dim, &count)) return std::nullopt;
  }
  return count;
}

}  // namespace nereid::http
