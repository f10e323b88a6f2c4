// Memory that grows without moving, on the CPU or on a GPU. Virtual addresses for its maximum size
// are reserved at once; memory is committed to them as it is needed. [any thread; one object, one
// thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "host/core/memory/buffer_attributes.h"
#include "nereid/status.h"

namespace nereid::core {

class ReservedMemory {
 public:
  // Reserves addresses for `max_bytes`, none of which is usable yet. UNAVAILABLE if the address
  // space is exhausted; UNSUPPORTED if the GPU's driver cannot reserve addresses.
  static Result<std::unique_ptr<ReservedMemory>> Reserve(MemoryLocation location, size_t max_bytes);
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  char* base() const { return base_; }
  size_t max_bytes() const { return max_bytes_; }
  // Number of usable bytes from base() on. New CPU memory is zeroed.
  size_t byte_size() const { return byte_size_; }

  // Makes at least `byte_size` bytes usable and keeps content and addresses. INVALID_ARG beyond
  // max_bytes(); UNAVAILABLE if no memory is left.
  Status Grow(size_t byte_size);

 private:
  ReservedMemory(MemoryLocation location, char* base, size_t max_bytes, size_t granularity)
      : location_(location), base_(base), max_bytes_(max_bytes), granularity_(granularity) {}

  // Commits `byte_size` more bytes, a multiple of the granularity.
  Status Commit(size_t byte_size);

  const MemoryLocation location_;
  char* const base_;
  const size_t max_bytes_;
  const size_t granularity_;
  size_t byte_size_ = 0;
  std::vector<std::pair<uint64_t, size_t>> chunks_;  // on a GPU: handle and bytes, in address order
};

}  // namespace nereid::core
