// The shared-memory extensions: regions registered by clients, and the ranges of them that hold
// tensors of a request. All frontends share one manager, because a region registered over HTTP may
// be used over gRPC. [any thread]
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/response_allocator.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid {

enum class SharedMemoryKind { kSystem, kCuda };

// A range of a region as named in a request, in bytes.
struct SharedRange {
  std::string region;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

class SharedRegion;

// A mapped range. It stays mapped while this object lives, even if the region is unregistered.
struct MappedRange {
  std::shared_ptr<const SharedRegion> region;
  std::shared_ptr<const void> use_count;  // while held, the region stays available to requests
  char* base = nullptr;
  size_t size_bytes = 0;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;

  // Called before the response is sent: an error if memory that was read or written had been
  // truncated.
  Status CheckIntact() const;
};

// An output that is written to shared memory instead of into the response.
struct SharedOutput {
  std::string tensor;
  MappedRange range;
};

// Returns the buffer for `output` if it is one of `outputs`, else a null base. INTERNAL, as in
// Triton, if its range is too small.
Result<OutputBuffer> AllocateShared(std::span<const SharedOutput> outputs,
                                    const OutputRequest& output);
const SharedOutput* FindShared(std::span<const SharedOutput> outputs, std::string_view tensor);

// Region description returned by the status calls.
struct SharedRegionInfo {
  std::string name;
  std::string key;  // of a system region
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  int64_t device_id = 0;  // of a CUDA region
};

// Limits of the regions that clients register, system and CUDA memory together.
struct SharedMemoryLimits {
  size_t max_regions = 1024;
  uint64_t max_bytes = uint64_t{1} << 36;  // sum of the regions' sizes
};

class SharedMemoryManager {
 public:
  // If `allows_clients` is false, nothing can be registered and every name is unknown.
  explicit SharedMemoryManager(bool allows_clients, SharedMemoryLimits limits = {})
      : allows_clients_(allows_clients), limits_(limits) {}

  // Maps `size_bytes` of the POSIX object `key`. ALREADY_EXISTS if the name is registered.
  // UNAVAILABLE beyond a limit.
  Status RegisterSystem(const std::string& name, const std::string& key, uint64_t offset,
                        uint64_t size_bytes);
  // `raw_handle` contains the bytes of a cudaIpcMemHandle_t. May create a CUDA context, which is
  // slow.
  Status RegisterCuda(const std::string& name, std::string_view raw_handle, int64_t device_id,
                      uint64_t size_bytes);
  // An empty name unregisters every region of the kind. A name that is unknown or of the other kind
  // is no error. As in Triton, a region that requests use stays available until none uses it.
  void Unregister(SharedMemoryKind kind, const std::string& name);
  // Sorted by name. An empty name returns every region of the kind.
  Result<std::vector<SharedRegionInfo>> Describe(SharedMemoryKind kind,
                                                 const std::string& name) const;

  Result<MappedRange> Find(const SharedRange& range) const;

 private:
  // Keeps a region available.
  struct Use {
    const std::shared_ptr<const SharedRegion> region;
  };
  struct Entry {
    SharedMemoryKind kind;
    SharedRegionInfo info;
    std::shared_ptr<const Use> registration;  // null once the region was unregistered
    std::weak_ptr<const Use> use;             // of the registration and of mapped ranges
  };
  using Entries = std::map<std::string, Entry>;

  // Checks what can be known before the memory is mapped.
  Status CheckNew(const SharedRegionInfo& info);
  Status Add(std::shared_ptr<const SharedRegion> region);
  // Both [under mutex_]. CheckRoom first erases the regions that are no longer available.
  Status CheckRoom(const SharedRegionInfo& info);
  // Null if the region is unknown or no longer available.
  const Entry* FindEntry(const std::string& name) const;

  const bool allows_clients_;
  const SharedMemoryLimits limits_;
  mutable std::mutex mutex_;  // guards regions_
  Entries regions_;
};

}  // namespace nereid
