#include "host/core/handle/data_type.h"

#include <array>
#include <cstddef>

namespace nereid {
namespace {

struct TypeInfo {
  const char* name;
  uint32_t byte_size;
};

constexpr std::array<TypeInfo, 15> kTypes = {{{"<invalid>", 0},
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

const TypeInfo& Info(DataType type) {
  const auto index = static_cast<size_t>(type);
  return kTypes[index < kTypes.size() ? index : 0];
}

}  // namespace

const char* DataTypeName(DataType type) {
  return Info(type).name;
}

DataType DataTypeFromName(std::string_view name) {
  for (size_t i = 1; i < kTypes.size(); ++i) {
    if (name == kTypes[i].name) return static_cast<DataType>(i);
  }
  return DataType::kInvalid;
}

DataType DataTypeFromConfigName(std::string_view name) {
  constexpr std::string_view kPrefix = "TYPE_";
  if (name.substr(0, kPrefix.size()) != kPrefix) return DataType::kInvalid;
  name.remove_prefix(kPrefix.size());
  return name == "STRING" ? DataType::kBytes : DataTypeFromName(name);
}

uint32_t DataTypeByteSize(DataType type) {
  return Info(type).byte_size;
}

}  // namespace nereid
