// TRITONBACKEND_MemoryManager: allocates memory for backends and the host. CPU memory comes from
// malloc. Pinned memory and GPU memory come from pools of a fixed size, which are created on first
// use. On a machine without a GPU both are refused with UNSUPPORTED, and backends fall back to CPU
// memory. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "host/core/handle/handle_cast.h"
#include "host/core/memory/memory_pool.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::core {

struct MemoryOptions {
  uint64_t pinned_pool_bytes = uint64_t{1} << 28;
  std::map<int, uint64_t> cuda_pool_bytes = {};  // by device; 64 MiB for devices not listed
  bool peer_access = true;                       // enable it between devices that have a pool
};

class MemoryManager {
 public:
  explicit MemoryManager(MemoryOptions options = {}) : options_(std::move(options)) {}
  ~MemoryManager();
  MemoryManager(const MemoryManager&) = delete;
  MemoryManager& operator=(const MemoryManager&) = delete;

  // UNAVAILABLE if no memory is left or the pool's configured size is 0. The result is never null,
  // not even for 0 bytes.
  Result<void*> Allocate(TRITONSERVER_MemoryType type, int64_t type_id, uint64_t byte_size);
  // Takes the same `type` and `type_id` as Allocate. INVALID_ARG for pinned or GPU memory that this
  // manager did not allocate.
  Status Free(void* buffer, TRITONSERVER_MemoryType type, int64_t type_id);

  struct PoolUse {
    uint64_t total_bytes = 0, used_bytes = 0;
  };
  // The use of the pinned pool; both numbers are 0 without a GPU.
  PoolUse PinnedUse() const;

 private:
  // A pool, or null and the error that every allocation returns because the pool was not created.
  struct Pool {
    std::unique_ptr<MemoryPool> pool;
    Status error;
  };
  Result<MemoryPool*> PoolOf(TRITONSERVER_MemoryType type, int64_t type_id);
  Pool MakePool(TRITONSERVER_MemoryType type, int32_t device);
  void ConnectPeers(int32_t device);

  const MemoryOptions options_;
  mutable std::mutex mutex_;       // guards pools_, but not the content of the pools
  std::map<int32_t, Pool> pools_;  // by device; kPinned is the key of the pinned pool
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONBACKEND_MemoryManager, nereid::core::MemoryManager);
