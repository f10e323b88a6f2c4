// Blocks of a worker's shared memory that are posted for large inputs: a frontend receives the
// client's bytes into them, so that they need not be copied. The number of posted blocks is
// limited, because the worker lacks the memory that slow clients hold. [any thread]
// Gain: 988 instead of 816 requests of 1 MiB a second with one connection, 1,459 for 977 with 64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "backends/python_like_scripted/shared_region.h"
#include "nereid/ext/posted_input_buffer.h"

namespace nereid::python {

// For one worker. Each posted buffer keeps this object alive.
class PostedInputBuffers : public std::enable_shared_from_this<PostedInputBuffers> {
 public:
  // Copying shorter inputs is faster. Allocating longer blocks may have to wait for memory.
  static constexpr uint64_t kMinBlockBytes = 64 << 10;
  static constexpr uint64_t kMaxBlockBytes = 16 << 20;
  static constexpr size_t kMaxBlocks = 16;
  static constexpr uint64_t kMaxBytes = 64 << 20;

  struct Buffer {
    void* base = nullptr;  // null: no buffer is posted
    NEREID_ReleaseFn_t release_fn = nullptr;
    void* release_userp = nullptr;
  };

  // Posts no buffers if `region_max_bytes` limits the worker's memory (0: without limit): between
  // blocks that slow clients hold, there may be no space for a long input.
  explicit PostedInputBuffers(uint64_t region_max_bytes);

  // Posts a block of the worker's region, which the buffer may outlive. If the region has no free
  // space, posts none; the region's next GrowForMissedAllocations adds the space.
  Buffer Post(SharedRegion& region, uint64_t size_bytes);
  // Returns the posted block that contains all of `bytes`, if any.
  std::optional<SharedBlock> Find(std::span<const std::byte> bytes);

 private:
  struct Posting;
  static void Release(void* posting);

  const uint64_t max_bytes_;
  std::mutex mutex_;  // guards the members below
  std::map<const std::byte*, SharedBlock> posted_;
  uint64_t num_bytes_ = 0;
};

}  // namespace nereid::python
