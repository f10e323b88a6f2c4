// TRITONSERVER_ResponseAllocator: the client's callbacks that allocate output buffers. A frontend
// creates one, and many requests use it at the same time. [any thread]
#pragma once

#include <algorithm>
#include <cstdlib>

#include "host/core/handle/error.h"
#include "host/core/handle/handle_cast.h"
#include "nereid/ext/leased_output.h"
#include "triton/core/tritonserver.h"

namespace nereid::core {

struct ResponseAllocator {
  TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn = nullptr;
  TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn = nullptr;
  TRITONSERVER_ResponseAllocatorStartFn_t start_fn = nullptr;                         // may be null
  TRITONSERVER_ResponseAllocatorBufferAttributesFn_t buffer_attributes_fn = nullptr;  // may be null
  TRITONSERVER_ResponseAllocatorQueryFn_t query_fn = nullptr;                         // may be null
  NEREID_AcceptLeaseFn_t accept_lease_fn = nullptr;  // null if it does not accept leased outputs
};

// Allocates output buffers with malloc, for requests of the host itself whose outputs are
// discarded. [any thread]
inline const ResponseAllocator kHeapAllocator = {
    .alloc_fn = [](TRITONSERVER_ResponseAllocator*, const char*, size_t byte_size,
                   TRITONSERVER_MemoryType, int64_t, void*, void** buffer, void** buffer_userp,
                   TRITONSERVER_MemoryType* memory_type,
                   int64_t* memory_type_id) -> TRITONSERVER_Error* {
      *buffer = std::malloc(std::max<size_t>(byte_size, 1));
      *buffer_userp = nullptr;
      *memory_type = TRITONSERVER_MEMORY_CPU;
      *memory_type_id = 0;
      if (*buffer != nullptr) return nullptr;
      return ToError(UnavailableError("failed to allocate ", byte_size, " bytes of CPU memory"));
    },
    .release_fn = [](TRITONSERVER_ResponseAllocator*, void* buffer, void*, size_t,
                     TRITONSERVER_MemoryType, int64_t) -> TRITONSERVER_Error* {
      std::free(buffer);
      return nullptr;
    }};

}  // namespace nereid::core

NEREID_HANDLE(TRITONSERVER_ResponseAllocator, nereid::core::ResponseAllocator);
