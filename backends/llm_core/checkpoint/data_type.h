// Element types of checkpoint tensors, and their sizes. Names are those of the safetensors format.
// [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nereid::llm {

enum class DataType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64
};

struct DataTypeInfo {
  DataType type;
  std::string_view name;
  size_t size_bytes;
};

inline constexpr DataTypeInfo kDataTypes[] = {
    {DataType::kBool, "BOOL", 1},      {DataType::kU8, "U8", 1},
    {DataType::kI8, "I8", 1},          {DataType::kF8E4M3, "F8_E4M3", 1},
    {DataType::kF8E5M2, "F8_E5M2", 1}, {DataType::kI16, "I16", 2},
    {DataType::kU16, "U16", 2},        {DataType::kF16, "F16", 2},
    {DataType::kBF16, "BF16", 2},      {DataType::kI32, "I32", 4},
    {DataType::kU32, "U32", 4},        {DataType::kF32, "F32", 4},
    {DataType::kF64, "F64", 8},        {DataType::kI64, "I64", 8},
    {DataType::kU64, "U64", 8},
};

constexpr const DataTypeInfo& Info(DataType type) {
  return kDataTypes[static_cast<size_t>(type)];
}

constexpr std::optional<DataType> ParseDataType(std::string_view name) {
  for (const DataTypeInfo& info : kDataTypes) {
    if (info.name == name) return info.type;
  }
  return std::nullopt;
}

}  // namespace nereid::llm
