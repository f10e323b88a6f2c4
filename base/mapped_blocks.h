// Memory for large tensors, mapped from the system block by block and given back when it is freed,
// whichever thread frees it. Heaps keep such memory: mimalloc until the thread that has allocated
// it asks, which the thread of a backend never does. A few blocks are kept for reuse, so that most
// allocations cost no system call. [any thread]
#pragma once

#include <cstddef>

namespace nereid {

class MappedBlocks {
 public:
  // Smaller tensors belong into the heap.
  static constexpr size_t kMinBytes = 64 << 10;
  // The most bytes of freed blocks that are kept for the next allocations.
  static constexpr size_t kMaxKeptBytes = 64 << 20;

  // Returns memory that is aligned to a page; null if the system has none. Its content is
  // undefined.
  static void* Allocate(size_t size_bytes);
  // `size_bytes` as in Allocate.
  static void Free(void* block, size_t size_bytes);
  // Gives the kept blocks back to the system.
  static void Trim();
  static size_t num_kept_bytes();
};

}  // namespace nereid
