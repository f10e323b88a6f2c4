// GPU memory that a worker and the host share. The host writes into allocations of its own, which
// the worker opens by CUDA IPC. Each of its blocks has a token in the shared memory that the host
// writes, so that the worker releases it like any other block. Allocations of the worker that its
// answers refer to are opened here. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <vector>

#include "backends/python_like_scripted/shared_region.h"
#include "base/cuda_driver.h"
#include "nereid/status.h"

namespace nereid::python {

// A byte range within an allocation of GPU memory.
struct GpuRange {
  int64_t device = 0;
  CudaDriver::IpcHandle handle{};
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

struct GpuBlock {
  GpuRange range;
  std::byte* data = nullptr;
  SharedBlock token;  // releasing it releases the block
};

class GpuRegion {
 public:
  // `tokens` outlives the region.
  explicit GpuRegion(SharedRegion& tokens) : tokens_(tokens) {}
  ~GpuRegion();
  GpuRegion(const GpuRegion&) = delete;
  GpuRegion& operator=(const GpuRegion&) = delete;

  // Allocates a block from the host's own allocations.
  Result<GpuBlock> Allocate(int64_t device, uint64_t size_bytes);

  // Copies a range that the worker named, of its own allocations or of the host's, to host or GPU
  // memory. INVALID_ARG if the range is outside of its allocation.
  Status CopyFrom(const GpuRange& range, void* target);

 private:
  struct Chunk {
    int64_t device = 0;
    CudaDriver::IpcHandle handle{};
    std::byte* base = nullptr;
    uint64_t size_bytes = 0;
    std::map<uint64_t, std::pair<uint64_t, SharedBlock>> used;  // begin -> end, token
  };
  // Returns a chunk with free space at `begin`; allocates one if none has.
  Result<Chunk*> ChunkWithSpace(int64_t device, uint64_t needed_bytes, uint64_t* begin);
  static bool FindSpace(Chunk& chunk, uint64_t needed_bytes, uint64_t* begin);
  Result<const Chunk*> Find(const GpuRange& range);

  SharedRegion& tokens_;
  std::mutex mutex_;          // guards the members below
  std::deque<Chunk> chunks_;  // allocations of the host
  std::list<Chunk> opened_;   // allocations of the worker, most recently used first
};

}  // namespace nereid::python
