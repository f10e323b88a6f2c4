#include "host/core/request/discard.h"

#include <algorithm>
#include <cstdlib>

#include "host/core/handle/error.h"

namespace nereid {
namespace {

TRITONSERVER_Error* Allocate(TRITONSERVER_ResponseAllocator*, const char*, size_t byte_size,
                             TRITONSERVER_MemoryType, int64_t, void*, void** buffer,
                             void** buffer_userp, TRITONSERVER_MemoryType* memory_type,
                             int64_t* memory_type_id) {
  *buffer = std::malloc(std::max<size_t>(byte_size, 1));
  *buffer_userp = nullptr;
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  if (*buffer != nullptr) return nullptr;
  return ToError(UnavailableError("failed to allocate ", byte_size, " bytes of CPU memory"));
}

TRITONSERVER_Error* Free(TRITONSERVER_ResponseAllocator*, void* buffer, void*, size_t,
                         TRITONSERVER_MemoryType, int64_t) {
  std::free(buffer);
  return nullptr;
}

}  // namespace

const ResponseAllocator kHeapAllocator = {.alloc_fn = &Allocate, .release_fn = &Free};

}  // namespace nereid
