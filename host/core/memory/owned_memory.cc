#include "host/core/memory/owned_memory.h"

#include <cstdlib>
#include <cstring>

#include "base/cuda_driver.h"

namespace nereid::core {

Result<std::shared_ptr<OwnedMemory>> OwnedMemory::Allocate(MemoryManager* manager,
                                                           MemoryLocation requested,
                                                           size_t byte_size) {
  const auto own = [&](void* base, MemoryLocation location) {
    return std::shared_ptr<OwnedMemory>(
        new OwnedMemory(manager, static_cast<char*>(base), byte_size, location));
  };
  if (manager != nullptr && requested.type != TRITONSERVER_MEMORY_CPU) {
    const Result<void*> base = manager->Allocate(requested.type, requested.type_id, byte_size);
    if (base.ok()) return own(base.value(), requested);
  }
  void* const base = std::malloc(byte_size == 0 ? 1 : byte_size);
  if (base != nullptr) return own(base, {});
  return UnavailableError("failed to allocate ", byte_size, " bytes of CPU memory");
}

Result<std::shared_ptr<OwnedMemory>> OwnedMemory::AllocateGrowable(MemoryLocation location,
                                                                   size_t byte_size,
                                                                   size_t max_bytes) {
  if (!location.is_gpu()) location = {};
  NEREID_ASSIGN_OR_RETURN(auto reserved, ReservedMemory::Reserve(location, max_bytes));
  NEREID_RETURN_IF_ERROR(reserved->Grow(byte_size));
  return std::shared_ptr<OwnedMemory>(new OwnedMemory(std::move(reserved), location));
}

Status OwnedMemory::Grow(size_t byte_size) {
  NEREID_RETURN_IF_ERROR(reserved_->Grow(byte_size));
  byte_size_ = reserved_->byte_size();
  return Status::Ok();
}

OwnedMemory::~OwnedMemory() {
  if (is_growable()) return;
  if (location_.type == TRITONSERVER_MEMORY_CPU) {
    std::free(base_);
  } else {
    (void)manager_->Free(base_, location_.type, location_.type_id);
  }
}

Status CopyMemory(void* to, MemoryLocation to_location, const void* from,
                  MemoryLocation from_location, size_t byte_size) {
  if (byte_size == 0) return Status::Ok();
  if (!to_location.is_gpu() && !from_location.is_gpu()) {
    std::memcpy(to, from, byte_size);
    return Status::Ok();
  }
  const int64_t device = to_location.is_gpu() ? to_location.type_id : from_location.type_id;
  const CudaDriver* const driver = CudaDriver::Get();
  if (driver == nullptr) {
    return UnsupportedError("memory of GPU ", device, ": this machine has no CUDA driver");
  }
  return driver->Copy(static_cast<int32_t>(device), to, from, byte_size);
}

}  // namespace nereid::core
