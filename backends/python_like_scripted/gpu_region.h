// Memory of GPUs between a worker and the host. What the host writes lies in allocations of its
// own, which the worker opens; each block has a token in the shared memory that the host writes, so
// that it comes back as every other block does. What the worker answers with is opened here.
// [any thread]
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

namespace nereid::scripted {

// Bytes in an allocation of a GPU.
struct GpuPlace {
  int64_t device = 0;
  CudaDriver::IpcHandle handle{};
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

struct GpuBlock {
  GpuPlace place;
  std::byte* data = nullptr;
  Block token;  // its release gives the block back
};

class GpuRegion {
 public:
  // `tokens` outlives it.
  explicit GpuRegion(SharedRegion& tokens) : tokens_(tokens) {}
  ~GpuRegion();
  GpuRegion(const GpuRegion&) = delete;
  GpuRegion& operator=(const GpuRegion&) = delete;

  // Of the host's own allocations.
  Result<GpuBlock> Allocate(int64_t device, uint64_t size_bytes);

  // Copies bytes that the worker named, of its own allocations or of these, to memory of the host
  // or of a GPU. INVALID_ARG for a place outside of its allocation.
  Status CopyFrom(const GpuPlace& place, void* target);

 private:
  struct Chunk {
    int64_t device = 0;
    CudaDriver::IpcHandle handle{};
    std::byte* base = nullptr;
    uint64_t size_bytes = 0;
    std::map<uint64_t, std::pair<uint64_t, Block>> used;  // begin -> end, token
  };
  // One that has room at `begin`; a new one when none has.
  Result<Chunk*> ChunkWithRoom(int64_t device, uint64_t needed_bytes, uint64_t* begin);
  static bool FindRoom(Chunk& chunk, uint64_t needed_bytes, uint64_t* begin);
  Result<const Chunk*> Find(const GpuPlace& place);

  SharedRegion& tokens_;
  std::mutex mutex_;          // guards what follows
  std::deque<Chunk> chunks_;  // of the host
  std::list<Chunk> opened_;   // of the worker, the last used first
};

}  // namespace nereid::scripted
