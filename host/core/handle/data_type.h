// Tensor data types inside the core. Values equal TRITONSERVER_DataType, so that the C edge casts.
// [any thread]
#pragma once

#include <cstdint>
#include <string_view>

namespace nereid {

enum class DataType : uint32_t {
  kInvalid = 0,
  kBool = 1,
  kUint8 = 2,
  kUint16 = 3,
  kUint32 = 4,
  kUint64 = 5,
  kInt8 = 6,
  kInt16 = 7,
  kInt32 = 8,
  kInt64 = 9,
  kFp16 = 10,
  kFp32 = 11,
  kFp64 = 12,
  kBytes = 13,
  kBf16 = 14,
};

// "FP32", "BYTES", ...; "<invalid>" for kInvalid. The result is NUL-terminated and lives for ever.
const char* DataTypeName(DataType type);
// The inverse of DataTypeName; kInvalid when the name is unknown.
DataType DataTypeFromName(std::string_view name);
// As config files spell it: "TYPE_FP32", "TYPE_STRING"; kInvalid when the name is unknown.
DataType DataTypeFromConfigName(std::string_view name);
// Bytes of one element; 0 for BYTES and invalid, whose size is not fixed.
uint32_t DataTypeByteSize(DataType type);

}  // namespace nereid
