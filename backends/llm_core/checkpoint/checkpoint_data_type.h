// Element types of checkpoint tensors with their sizes and safetensors names. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nereid::llm {

enum class CheckpointDataType : uint8_t {
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

struct CheckpointDataTypeInfo {
  CheckpointDataType type;
  std::string_view name;
  size_t size_bytes;
};

inline constexpr CheckpointDataTypeInfo kCheckpointDataTypes[] = {
    {CheckpointDataType::kBool, "BOOL", 1},      {CheckpointDataType::kU8, "U8", 1},
    {CheckpointDataType::kI8, "I8", 1},          {CheckpointDataType::kF8E4M3, "F8_E4M3", 1},
    {CheckpointDataType::kF8E5M2, "F8_E5M2", 1}, {CheckpointDataType::kI16, "I16", 2},
    {CheckpointDataType::kU16, "U16", 2},        {CheckpointDataType::kF16, "F16", 2},
    {CheckpointDataType::kBF16, "BF16", 2},      {CheckpointDataType::kI32, "I32", 4},
    {CheckpointDataType::kU32, "U32", 4},        {CheckpointDataType::kF32, "F32", 4},
    {CheckpointDataType::kF64, "F64", 8},        {CheckpointDataType::kI64, "I64", 8},
    {CheckpointDataType::kU64, "U64", 8},
};

constexpr const CheckpointDataTypeInfo& Info(CheckpointDataType type) {
  return kCheckpointDataTypes[static_cast<size_t>(type)];
}

constexpr std::optional<CheckpointDataType> ParseCheckpointDataType(std::string_view name) {
  for (const CheckpointDataTypeInfo& info : kCheckpointDataTypes) {
    if (info.name == name) return info.type;
  }
  return std::nullopt;
}

}  // namespace nereid::llm
