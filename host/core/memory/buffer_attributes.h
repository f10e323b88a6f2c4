// TRITONSERVER_BufferAttributes: the location and size of a buffer. [one thread at a time]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "host/core/handle/handle_cast.h"
#include "triton/core/tritonserver.h"

namespace nereid::core {

// "CPU", "CPU_PINNED" or "GPU"; "<invalid>" for any other value.
inline const char* MemoryTypeName(TRITONSERVER_MemoryType type) {
  switch (type) {
    case TRITONSERVER_MEMORY_CPU:
      return "CPU";
    case TRITONSERVER_MEMORY_CPU_PINNED:
      return "CPU_PINNED";
    case TRITONSERVER_MEMORY_GPU:
      return "GPU";
  }
  return "<invalid>";
}

// A memory type and the id of the device that has it.
struct MemoryLocation {
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t type_id = 0;

  bool is_gpu() const { return type == TRITONSERVER_MEMORY_GPU; }
  bool operator==(const MemoryLocation&) const = default;
};

struct BufferAttributes {
  // The bytes of a cudaIpcMemHandle_t.
  using CudaIpcHandle = std::array<std::byte, 64>;

  size_t byte_size = 0;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  std::shared_ptr<CudaIpcHandle> cuda_ipc_handle;  // null if the buffer has none
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONSERVER_BufferAttributes, nereid::core::BufferAttributes);
