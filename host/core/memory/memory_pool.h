// Allocates blocks from one range of addresses. It never accesses the memory itself, so the range
// may be device memory. First fit; adjacent free blocks are merged. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace nereid::core {

class MemoryPool {
 public:
  // The caller owns the range and keeps it valid as long as the pool exists.
  MemoryPool(void* base, size_t size_bytes);

  // Blocks are aligned to 256 bytes relative to the start of the range. Null if no free block is
  // large enough.
  void* Allocate(size_t byte_size);
  // Returns false and does nothing if Allocate did not return `buffer`.
  bool Free(void* buffer);

  void* base() const { return base_; }
  size_t size_bytes() const { return size_bytes_; }
  size_t used_bytes() const;

 private:
  char* const base_;
  const size_t size_bytes_;
  mutable std::mutex mutex_;            // guards the members below
  std::map<size_t, size_t> free_;       // free blocks: offset -> bytes
  std::map<size_t, size_t> allocated_;  // allocated blocks: offset -> bytes
  size_t used_bytes_ = 0;
};

}  // namespace nereid::core
