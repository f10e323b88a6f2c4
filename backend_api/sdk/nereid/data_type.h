/// \file
/// Element types of tensors: their names, sizes and C++ types. [any thread]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "triton/core/tritonserver.h"

namespace nereid {

enum class DataType : uint32_t {
  kInvalid = TRITONSERVER_TYPE_INVALID,
  kBool = TRITONSERVER_TYPE_BOOL,
  kUint8 = TRITONSERVER_TYPE_UINT8,
  kUint16 = TRITONSERVER_TYPE_UINT16,
  kUint32 = TRITONSERVER_TYPE_UINT32,
  kUint64 = TRITONSERVER_TYPE_UINT64,
  kInt8 = TRITONSERVER_TYPE_INT8,
  kInt16 = TRITONSERVER_TYPE_INT16,
  kInt32 = TRITONSERVER_TYPE_INT32,
  kInt64 = TRITONSERVER_TYPE_INT64,
  kFp16 = TRITONSERVER_TYPE_FP16,
  kFp32 = TRITONSERVER_TYPE_FP32,
  kFp64 = TRITONSERVER_TYPE_FP64,
  kBytes = TRITONSERVER_TYPE_BYTES,
  kBf16 = TRITONSERVER_TYPE_BF16,
};

namespace internal {
struct DataTypeTraits {
  const char* name;
  uint32_t size_bytes;
};
inline constexpr std::array<DataTypeTraits, 15> kDataTypes = {{{"<invalid>", 0},
                                                               {"BOOL", 1},
                                                               {"UINT8", 1},
                                                               {"UINT16", 2},
                                                               {"UINT32", 4},
                                                               {"UINT64", 8},
                                                               {"INT8", 1},
                                                               {"INT16", 2},
                                                               {"INT32", 4},
                                                               {"INT64", 8},
                                                               {"FP16", 2},
                                                               {"FP32", 4},
                                                               {"FP64", 8},
                                                               {"BYTES", 0},
                                                               {"BF16", 2}}};
}  // namespace internal

/// "FP32", "BYTES" and so on; "<invalid>" for any other value.
constexpr const char* Name(DataType type) {
  const auto index = static_cast<size_t>(type);
  return internal::kDataTypes[index < internal::kDataTypes.size() ? index : 0].name;
}
/// Bytes of one element; 0 for kInvalid and for BYTES, whose elements differ in size.
constexpr size_t ByteSize(DataType type) {
  const auto index = static_cast<size_t>(type);
  return internal::kDataTypes[index < internal::kDataTypes.size() ? index : 0].size_bytes;
}
/// The inverse of Name: "FP32", "BYTES". kInvalid for any other text.
constexpr DataType DataTypeFromProtocolName(std::string_view name) {
  for (size_t i = 1; i < internal::kDataTypes.size(); ++i) {
    if (name == internal::kDataTypes[i].name) return static_cast<DataType>(i);
  }
  return DataType::kInvalid;
}
/// The inverse of ConfigName: "TYPE_FP32", "TYPE_STRING". kInvalid for any other text, except that
/// "TYPE_BYTES" is accepted, too.
constexpr DataType DataTypeFromConfigName(std::string_view name) {
  if (!name.starts_with("TYPE_")) return DataType::kInvalid;
  name.remove_prefix(5);
  return name == "STRING" ? DataType::kBytes : DataTypeFromProtocolName(name);
}
/// Accepts both spellings, and "STRING" for BYTES. kInvalid for an unknown name.
constexpr DataType DataTypeFromName(std::string_view name) {
  if (name.starts_with("TYPE_")) return DataTypeFromConfigName(name);
  return name == "STRING" ? DataType::kBytes : DataTypeFromProtocolName(name);
}
/// The name in a model configuration: "TYPE_FP32", "TYPE_STRING" for BYTES.
constexpr const char* ConfigName(DataType type) {
  constexpr std::array<const char*, 15> kNames = {
      "TYPE_INVALID", "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32",
      "TYPE_UINT64",  "TYPE_INT8", "TYPE_INT16", "TYPE_INT32",  "TYPE_INT64",
      "TYPE_FP16",    "TYPE_FP32", "TYPE_FP64",  "TYPE_STRING", "TYPE_BF16"};
  const auto index = static_cast<size_t>(type);
  return kNames[index < kNames.size() ? index : 0];
}

/// A BOOL element: one byte from the client, where any value but 0 means true. *Rationale:* reading
/// a byte with the value 2 as a C++ bool is undefined behaviour, and clients do send such bytes.
struct Bool {
  uint8_t byte = 0;
  constexpr Bool() = default;
  constexpr Bool(bool value) : byte(value ? 1 : 0) {}  // NOLINT: implicit by intent
  constexpr operator bool() const { return byte != 0; }
};
/// Bit patterns of the 16-bit floating-point types. The SDK has no arithmetic for them.
struct Fp16 {
  uint16_t bits = 0;
  friend constexpr bool operator==(Fp16, Fp16) = default;
};
struct Bf16 {
  uint16_t bits = 0;
  friend constexpr bool operator==(Bf16, Bf16) = default;
};

/// kDataTypeOf<float> == DataType::kFp32; kInvalid for a type that is no element type.
template <typename T>
inline constexpr DataType kDataTypeOf = DataType::kInvalid;
template <>
inline constexpr DataType kDataTypeOf<Bool> = DataType::kBool;
template <>
inline constexpr DataType kDataTypeOf<uint8_t> = DataType::kUint8;
template <>
inline constexpr DataType kDataTypeOf<uint16_t> = DataType::kUint16;
template <>
inline constexpr DataType kDataTypeOf<uint32_t> = DataType::kUint32;
template <>
inline constexpr DataType kDataTypeOf<uint64_t> = DataType::kUint64;
template <>
inline constexpr DataType kDataTypeOf<int8_t> = DataType::kInt8;
template <>
inline constexpr DataType kDataTypeOf<int16_t> = DataType::kInt16;
template <>
inline constexpr DataType kDataTypeOf<int32_t> = DataType::kInt32;
template <>
inline constexpr DataType kDataTypeOf<int64_t> = DataType::kInt64;
template <>
inline constexpr DataType kDataTypeOf<Fp16> = DataType::kFp16;
template <>
inline constexpr DataType kDataTypeOf<float> = DataType::kFp32;
template <>
inline constexpr DataType kDataTypeOf<double> = DataType::kFp64;
template <>
inline constexpr DataType kDataTypeOf<Bf16> = DataType::kBf16;

/// The types that TensorView::As<T>, Response::Output<T> and similar functions accept.
template <typename T>
concept TensorElement = kDataTypeOf<T>
!= DataType::kInvalid;

constexpr TRITONSERVER_DataType ToC(DataType type) {
  return static_cast<TRITONSERVER_DataType>(type);
}

}  // namespace nereid
