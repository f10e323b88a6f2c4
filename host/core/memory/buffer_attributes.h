// Where a buffer lies and how long it is: TRITONSERVER_BufferAttributes. [one thread at a time]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "host/core/handle/handle_cast.h"
#include "triton/core/tritonserver.h"

namespace nereid {

// "CPU", "CPU_PINNED", "GPU"; "<invalid>" for anything else.
const char* MemoryTypeName(TRITONSERVER_MemoryType type);

struct BufferAttributes {
  // The bytes of a cudaIpcMemHandle_t.
  using CudaIpcHandle = std::array<std::byte, 64>;

  size_t byte_size = 0;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  std::shared_ptr<CudaIpcHandle> cuda_ipc_handle;  // null: none
};

}  // namespace nereid

NEREID_HANDLE(TRITONSERVER_BufferAttributes, nereid::BufferAttributes);
