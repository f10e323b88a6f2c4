// Hands out parts of one range of addresses, which it never touches: the range may lie on a device.
// First fit, neighbours that are free are one gap. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace nereid {

class MemoryPool {
 public:
  // The range is its owner's, and stays while the pool lives.
  MemoryPool(void* base, size_t size_bytes);

  // Aligned to 256 bytes as far as the range is; null when no gap is large enough.
  void* Allocate(size_t byte_size);
  // False, and nothing happens, for what Allocate did not hand out.
  bool Free(void* buffer);

  void* base() const { return base_; }
  size_t size_bytes() const { return size_bytes_; }
  size_t used_bytes() const;

 private:
  char* const base_;
  const size_t size_bytes_;
  mutable std::mutex mutex_;        // guards what follows
  std::map<size_t, size_t> gaps_;   // offset -> bytes
  std::map<size_t, size_t> taken_;  // offset -> bytes
  size_t used_bytes_ = 0;
};

}  // namespace nereid
