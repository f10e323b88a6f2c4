// Memory that backends ask the host for: TRITONBACKEND_MemoryManager. CPU memory comes from malloc,
// pinned memory and that of a GPU from pools of a fixed size, made when they are first needed. On a
// machine without a GPU both are refused with UNSUPPORTED, and backends fall back to CPU memory.
// [any thread]
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

namespace nereid {

struct MemoryOptions {
  uint64_t pinned_pool_bytes = uint64_t{1} << 28;
  std::map<int, uint64_t> cuda_pool_bytes = {};  // by device; others have 64 MiB
  bool peer_access = true;                       // between devices that have a pool
};

class MemoryManager {
 public:
  explicit MemoryManager(MemoryOptions options = {}) : options_(std::move(options)) {}
  ~MemoryManager();
  MemoryManager(const MemoryManager&) = delete;
  MemoryManager& operator=(const MemoryManager&) = delete;

  // UNAVAILABLE when there is no memory left, or no pool because its size is 0. The result is never
  // null, also for 0 bytes.
  Result<void*> Allocate(TRITONSERVER_MemoryType type, int64_t type_id, uint64_t byte_size);
  // `type` and `type_id` as given to Allocate. INVALID_ARG for pinned or GPU memory that is not
  // this manager's.
  Status Free(void* buffer, TRITONSERVER_MemoryType type, int64_t type_id);

  // Of the pinned pool; both 0 without a GPU.
  struct PoolUse {
    uint64_t total_bytes = 0, used_bytes = 0;
  };
  PoolUse PinnedUse() const;

 private:
  // Not yet made, made, or failed: `error` is then the answer to everyone.
  struct Pool {
    std::unique_ptr<MemoryPool> pool;
    Status error;
  };
  Result<MemoryPool*> PoolOf(TRITONSERVER_MemoryType type, int64_t type_id);
  Pool MakePool(TRITONSERVER_MemoryType type, int32_t device);
  void ConnectPeers(int32_t device);

  const MemoryOptions options_;
  mutable std::mutex mutex_;       // guards pools_, not what is in them
  std::map<int32_t, Pool> pools_;  // by device; kPinned: the pinned pool
};

}  // namespace nereid

NEREID_HANDLE(TRITONBACKEND_MemoryManager, nereid::MemoryManager);
