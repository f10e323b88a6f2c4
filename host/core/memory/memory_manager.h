// Memory that backends ask the host for: TRITONBACKEND_MemoryManager. CPU memory comes from malloc;
// pinned and GPU memory are refused with UNSUPPORTED until the CUDA pools exist, and backends then
// fall back to CPU memory. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/handle_cast.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

class MemoryManager {
 public:
  // UNAVAILABLE when there is no memory left. The result is never null, also for 0 bytes.
  Result<void*> Allocate(TRITONSERVER_MemoryType type, int64_t type_id, uint64_t byte_size);
  // `type` and `type_id` as given to Allocate.
  Status Free(void* buffer, TRITONSERVER_MemoryType type, int64_t type_id);
};

}  // namespace nereid

NEREID_HANDLE(TRITONBACKEND_MemoryManager, nereid::MemoryManager);
