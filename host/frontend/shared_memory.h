// The shared memory extensions: regions that clients registered, and the parts of them in which
// tensors of a request lie. One object for every frontend, since a region that was registered over
// HTTP may be named over gRPC. [any thread]
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

// What a client asks for: part of a region, in bytes.
struct SharedRange {
  std::string region;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

class SharedRegion;

// That part, mapped. It stays mapped while the block lives, whatever becomes of the region's name.
struct SharedBlock {
  std::shared_ptr<const SharedRegion> keep;
  std::shared_ptr<const void> use;  // until it is dropped, clients cannot unregister the region
  char* base = nullptr;
  size_t size_bytes = 0;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;

  // Before the answer to a request that used it: an error where what was read there, or written,
  // was not the client's memory.
  Status CheckTouched() const;
};

// Where an output of a request goes instead of into the response.
struct SharedOutput {
  std::string tensor;
  SharedBlock block;
};

// The buffer for `output` when it is one of `outputs`; a null base when it is not. INTERNAL, as
// Triton has it, when its block is too small.
Result<OutputBuffer> AllocateShared(std::span<const SharedOutput> outputs,
                                    const OutputRequest& output);
const SharedOutput* FindShared(std::span<const SharedOutput> outputs, std::string_view tensor);

// What the status calls tell of a region.
struct SharedRegionInfo {
  std::string name;
  std::string key;  // of a system region
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  int64_t device_id = 0;  // of a CUDA region
};

class SharedMemory {
 public:
  // With `allows_clients` false nothing can be registered, and every name is unknown.
  explicit SharedMemory(bool allows_clients) : allows_clients_(allows_clients) {}

  // Maps `size_bytes` of the POSIX object `key`. ALREADY_EXISTS when the name is taken.
  Status RegisterSystem(const std::string& name, const std::string& key, uint64_t offset,
                        uint64_t size_bytes);
  // `raw_handle` holds the bytes of a cudaIpcMemHandle_t. May create a CUDA context: slow.
  Status RegisterCuda(const std::string& name, std::string_view raw_handle, int64_t device_id,
                      uint64_t size_bytes);
  // An empty name unregisters every region of the kind; an unknown one, or one of the other kind,
  // is no error. INTERNAL, as Triton has it, for regions that requests use; they stay.
  Status Unregister(SharedMemoryKind kind, const std::string& name);
  // Sorted by name. An empty name asks for every region of the kind.
  Result<std::vector<SharedRegionInfo>> Describe(SharedMemoryKind kind,
                                                 const std::string& name) const;

  Result<SharedBlock> Find(const SharedRange& range) const;

 private:
  struct Entry {
    std::shared_ptr<const SharedRegion> region;
    std::shared_ptr<const void> use = std::make_shared<char>();  // shared by the region's blocks
  };
  using Entries = std::map<std::string, Entry>;

  Status CheckNew(const std::string& name) const;
  Status Add(std::shared_ptr<const SharedRegion> region);

  const bool allows_clients_;
  mutable std::mutex mutex_;  // guards regions_
  Entries regions_;
};

}  // namespace nereid
