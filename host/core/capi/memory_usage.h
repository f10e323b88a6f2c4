// Reads the array that the ReportMemoryUsage functions get. [any thread]
#pragma once

#include <span>
#include <vector>

#include "host/core/memory/buffer_attributes.h"
#include "host/core/observe/memory_usage.h"

namespace nereid {

// Null entries are skipped.
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

}  // namespace nereid
