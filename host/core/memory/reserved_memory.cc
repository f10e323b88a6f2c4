#include "host/core/memory/reserved_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/cuda_driver.h"

namespace nereid::core {
namespace {

size_t RoundUp(size_t bytes, size_t granularity) {
  return (bytes + granularity - 1) / granularity * granularity;
}

Result<const CudaDriver*> DriverFor(int64_t device) {
  const CudaDriver* const driver = CudaDriver::Get();
  if (driver != nullptr) return driver;
  return UnsupportedError("memory of GPU ", device, ": this machine has no CUDA driver");
}

}  // namespace

Result<std::unique_ptr<ReservedMemory>> ReservedMemory::Reserve(MemoryLocation location,
                                                                size_t max_bytes) {
  size_t granularity = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* base = nullptr;
  if (location.is_gpu()) {
    NEREID_ASSIGN_OR_RETURN(const CudaDriver* const driver, DriverFor(location.type_id));
    NEREID_ASSIGN_OR_RETURN(granularity, driver->GranularityOf(location.type_id));
    max_bytes = RoundUp(max_bytes, granularity);
    NEREID_ASSIGN_OR_RETURN(base, driver->ReserveAddresses(location.type_id, max_bytes));
  } else {
    location = {};
    max_bytes = RoundUp(max_bytes, granularity);
    base = mmap(nullptr, max_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
      return UnavailableError("failed to reserve addresses for ", max_bytes, " bytes");
    }
  }
  return std::unique_ptr<ReservedMemory>(
      new ReservedMemory(location, static_cast<char*>(base), max_bytes, granularity));
}

ReservedMemory::~ReservedMemory() {
  if (!location_.is_gpu()) {
    munmap(base_, max_bytes_);
    return;
  }
  const CudaDriver& driver = *CudaDriver::Get();
  char* at = base_;
  for (const auto& [handle, byte_size] : chunks_) {
    driver.UnmapMemory(location_.type_id, at, byte_size, handle);
    at += byte_size;
  }
  driver.FreeAddresses(location_.type_id, base_, max_bytes_);
}

Status ReservedMemory::Grow(size_t byte_size) {
  if (byte_size <= byte_size_) return Status::Ok();
  if (byte_size > max_bytes_) {
    return InvalidArgError("memory cannot grow to ", byte_size,
                           " bytes: addresses are reserved for ", max_bytes_);
  }
  return Commit(RoundUp(byte_size, granularity_) - byte_size_);
}

Status ReservedMemory::Commit(size_t byte_size) {
  char* const at = base_ + byte_size_;
  if (location_.is_gpu()) {
    chunks_.reserve(chunks_.size() + 1);
    NEREID_ASSIGN_OR_RETURN(const uint64_t handle,
                            CudaDriver::Get()->MapMemory(location_.type_id, at, byte_size));
    chunks_.emplace_back(handle, byte_size);
  } else if (mprotect(at, byte_size, PROT_READ | PROT_WRITE) != 0) {
    return UnavailableError("failed to allocate ", byte_size, " bytes of CPU memory");
  }
  byte_size_ += byte_size;
  return Status::Ok();
}

}  // namespace nereid::core
