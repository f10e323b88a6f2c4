#include "memory/memory_manager.h"

#include <cstdlib>

#include "memory/buffer_attributes.h"

namespace nereid {
namespace {

Status CheckCpu(TRITONSERVER_MemoryType type, int64_t type_id) {
  if (type == TRITONSERVER_MEMORY_CPU) return Status::Ok();
  return UnsupportedError("memory of type ", MemoryTypeName(type), " with id ", type_id,
                          " is not supported by this server");
}

}  // namespace

Result<void*> MemoryManager::Allocate(TRITONSERVER_MemoryType type, int64_t type_id,
                                      uint64_t byte_size) {
  NEREID_RETURN_IF_ERROR(CheckCpu(type, type_id));
  void* buffer = std::malloc(byte_size == 0 ? 1 : byte_size);
  if (buffer == nullptr) {
    return UnavailableError("failed to allocate ", byte_size, " bytes of CPU memory");
  }
  return buffer;
}

Status MemoryManager::Free(void* buffer, TRITONSERVER_MemoryType type, int64_t type_id) {
  NEREID_RETURN_IF_ERROR(CheckCpu(type, type_id));
  std::free(buffer);
  return Status::Ok();
}

}  // namespace nereid
