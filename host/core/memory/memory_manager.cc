#include "host/core/memory/memory_manager.h"

#include <cstdlib>
#include <utility>

#include "base/cuda_driver.h"
#include "host/core/memory/buffer_attributes.h"
#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

constexpr int32_t kPinned = -1;
constexpr uint64_t kDefaultCudaPoolBytes = uint64_t{1} << 26;

std::string NameOf(TRITONSERVER_MemoryType type, int64_t type_id) {
  if (type == TRITONSERVER_MEMORY_CPU_PINNED) return "pinned memory";
  return StrCat("memory of GPU ", type_id);
}

Status CheckLocation(TRITONSERVER_MemoryType type, int64_t type_id) {
  const CudaDriver* const driver = CudaDriver::Get();
  const bool is_known = type == TRITONSERVER_MEMORY_CPU_PINNED || type == TRITONSERVER_MEMORY_GPU;
  if (driver == nullptr || !is_known) {
    return UnsupportedError("memory of type ", MemoryTypeName(type), " with id ", type_id,
                            " is not supported by this server");
  }
  const auto num_devices = static_cast<int64_t>(driver->devices().size());
  if (type == TRITONSERVER_MEMORY_CPU_PINNED || (type_id >= 0 && type_id < num_devices)) {
    return Status::Ok();
  }
  return InvalidArgError(NameOf(type, type_id), ": this machine has ", num_devices,
                         " GPUs, numbered from 0");
}

}  // namespace

MemoryManager::~MemoryManager() {
  for (auto& [device, made] : pools_) {
    if (made.pool == nullptr) continue;
    if (device == kPinned) {
      CudaDriver::Get()->FreePinned(made.pool->base());
    } else {
      CudaDriver::Get()->FreeOnDevice(device, made.pool->base());
    }
  }
}

Result<void*> MemoryManager::Allocate(TRITONSERVER_MemoryType type, int64_t type_id,
                                      uint64_t byte_size) {
  if (type == TRITONSERVER_MEMORY_CPU) {
    void* const buffer = std::malloc(byte_size == 0 ? 1 : byte_size);
    if (buffer != nullptr) return buffer;
    return UnavailableError("failed to allocate ", byte_size, " bytes of CPU memory");
  }
  NEREID_ASSIGN_OR_RETURN(MemoryPool* const pool, PoolOf(type, type_id));
  void* const buffer = pool->Allocate(byte_size);
  if (buffer != nullptr) return buffer;
  return UnavailableError("failed to allocate ", byte_size, " bytes of ", NameOf(type, type_id),
                          ": ", pool->used_bytes(), " of ", pool->size_bytes(),
                          " bytes of its pool are in use");
}

Status MemoryManager::Free(void* buffer, TRITONSERVER_MemoryType type, int64_t type_id) {
  if (type == TRITONSERVER_MEMORY_CPU) {
    std::free(buffer);
    return Status::Ok();
  }
  NEREID_ASSIGN_OR_RETURN(MemoryPool* const pool, PoolOf(type, type_id));
  if (buffer == nullptr || pool->Free(buffer)) return Status::Ok();
  return InvalidArgError("a buffer that is not ", NameOf(type, type_id),
                         " of this server cannot be freed as such");
}

Result<MemoryPool*> MemoryManager::PoolOf(TRITONSERVER_MemoryType type, int64_t type_id) {
  NEREID_RETURN_IF_ERROR(CheckLocation(type, type_id));
  const int32_t device =
      type == TRITONSERVER_MEMORY_CPU_PINNED ? kPinned : static_cast<int32_t>(type_id);
  const std::lock_guard lock(mutex_);
  auto found = pools_.find(device);
  if (found == pools_.end()) {
    found = pools_.emplace(device, MakePool(type, device)).first;
    if (found->second.pool != nullptr) ConnectPeers(device);
  }
  if (found->second.pool == nullptr) return found->second.error;
  return found->second.pool.get();
}

// Backends request memory from a failed pool again and again. The failure is logged only here,
// once.
MemoryManager::Pool MemoryManager::MakePool(TRITONSERVER_MemoryType type, int32_t device) {
  uint64_t size_bytes = options_.pinned_pool_bytes;
  if (device != kPinned) {
    const auto given = options_.cuda_pool_bytes.find(device);
    size_bytes = given == options_.cuda_pool_bytes.end() ? kDefaultCudaPoolBytes : given->second;
  }
  if (size_bytes == 0) {
    return {nullptr, UnavailableError("the server has no pool of ", NameOf(type, device),
                                      ": its size is 0")};
  }
  const CudaDriver& driver = *CudaDriver::Get();
  const Result<void*> base = device == kPinned ? driver.AllocatePinned(size_bytes)
                                               : driver.AllocateOnDevice(device, size_bytes);
  if (!base.ok()) {
    NEREID_LOG_WARN("no pool of ", NameOf(type, device), ": ", base.status().message());
    return {nullptr, base.status()};
  }
  return {std::make_unique<MemoryPool>(base.value(), size_bytes), Status::Ok()};
}

void MemoryManager::ConnectPeers(int32_t device) {
  if (!options_.peer_access || device == kPinned) return;
  for (const auto& [peer, made] : pools_) {
    if (peer == kPinned || peer == device || made.pool == nullptr) continue;
    for (const auto& [from, to] : {std::pair(device, peer), std::pair(peer, device)}) {
      const Status status = CudaDriver::Get()->EnablePeerAccess(from, to);
      if (!status.ok()) NEREID_LOG_INFO(status.message());
    }
  }
}

MemoryManager::PoolUse MemoryManager::PinnedUse() const {
  if (CudaDriver::Get() == nullptr) return {};
  PoolUse use{options_.pinned_pool_bytes, 0};
  const std::lock_guard lock(mutex_);
  const auto made = pools_.find(kPinned);
  if (made != pools_.end() && made->second.pool != nullptr) {
    use.used_bytes = made->second.pool->used_bytes();
  }
  return use;
}

}  // namespace nereid::core
