#include "host/core/memory/owned_memory.h"

#include <cstdlib>
#include <cstring>

#include "base/cuda_driver.h"

namespace nereid {

Result<std::shared_ptr<OwnedMemory>> OwnedMemory::Allocate(MemoryManager* manager, MemoryPlace wish,
                                                           size_t byte_size) {
  const auto own = [&](void* base, MemoryPlace place) {
    return std::shared_ptr<OwnedMemory>(
        new OwnedMemory(manager, static_cast<char*>(base), byte_size, place));
  };
  if (manager != nullptr && wish.type != TRITONSERVER_MEMORY_CPU) {
    const Result<void*> base = manager->Allocate(wish.type, wish.type_id, byte_size);
    if (base.ok()) return own(base.value(), wish);
  }
  void* const base = std::malloc(byte_size == 0 ? 1 : byte_size);
  if (base != nullptr) return own(base, {});
  return UnavailableError("failed to allocate ", byte_size, " bytes of CPU memory");
}

Result<std::shared_ptr<OwnedMemory>> OwnedMemory::AllocateGrowable(MemoryPlace place,
                                                                   size_t byte_size,
                                                                   size_t max_bytes) {
  if (!place.is_gpu()) place = {};
  NEREID_ASSIGN_OR_RETURN(auto reserved, ReservedMemory::Reserve(place, max_bytes));
  NEREID_RETURN_IF_ERROR(reserved->Grow(byte_size));
  return std::shared_ptr<OwnedMemory>(new OwnedMemory(std::move(reserved), place));
}

Status OwnedMemory::Grow(size_t byte_size) {
  NEREID_RETURN_IF_ERROR(reserved_->Grow(byte_size));
  byte_size_ = reserved_->byte_size();
  return Status::Ok();
}

OwnedMemory::~OwnedMemory() {
  if (is_growable()) return;
  if (place_.type == TRITONSERVER_MEMORY_CPU) {
    std::free(base_);
  } else {
    (void)manager_->Free(base_, place_.type, place_.type_id);
  }
}

Status CopyMemory(void* to, MemoryPlace to_place, const void* from, MemoryPlace from_place,
                  size_t byte_size) {
  if (byte_size == 0) return Status::Ok();
  if (!to_place.is_gpu() && !from_place.is_gpu()) {
    std::memcpy(to, from, byte_size);
    return Status::Ok();
  }
  const int64_t device = to_place.is_gpu() ? to_place.type_id : from_place.type_id;
  const CudaDriver* const driver = CudaDriver::Get();
  if (driver == nullptr) {
    return UnsupportedError("memory of GPU ", device, ": this machine has no CUDA driver");
  }
  return driver->Copy(static_cast<int32_t>(device), to, from, byte_size);
}

}  // namespace nereid
