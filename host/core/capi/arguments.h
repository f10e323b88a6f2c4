// Arguments that several functions of the C API read. [any thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/core/handle/handle_cast.h"
#include "host/core/memory/buffer_attributes.h"
#include "host/core/observe/statistics.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::core {

// Checks the version of the JSON form of a model configuration.
inline Status CheckConfigVersion(uint32_t version) {
  if (version == 1) return Status::Ok();
  return InvalidArgError("model configuration version ", version,
                         " not supported, supported versions are: 1");
}

// Reads the array argument of the ReportMemoryUsage functions. Null entries are skipped.
inline std::vector<MemoryUsage::Entry> ReadMemoryUsage(
    std::span<TRITONSERVER_BufferAttributes* const> usage) {
  std::vector<MemoryUsage::Entry> entries;
  for (const TRITONSERVER_BufferAttributes* handle : usage) {
    if (handle == nullptr) continue;
    const BufferAttributes& attributes = *FromHandle(handle);
    entries.push_back(
        {MemoryTypeName(attributes.memory_type), attributes.memory_type_id, attributes.byte_size});
  }
  return entries;
}

// The memory type that a backend requests in an in/out parameter. Some backends leave it
// uninitialised (Triton's Python backend does for inputs). An invalid value means CPU memory.
inline TRITONSERVER_MemoryType RequestedMemoryType(const TRITONSERVER_MemoryType* memory_type) {
  const uint32_t value = RawEnumValue(*memory_type);
  return value <= TRITONSERVER_MEMORY_GPU ? static_cast<TRITONSERVER_MemoryType>(value)
                                          : TRITONSERVER_MEMORY_CPU;
}

}  // namespace nereid::core
