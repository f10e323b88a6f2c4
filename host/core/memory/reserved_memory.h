// Memory that grows where it is: addresses for its largest size are taken at once, memory is put
// behind them as it is needed. On the CPU or on a GPU. [any thread; one object, one thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "host/core/memory/memory_place.h"
#include "nereid/status.h"

namespace nereid {

class ReservedMemory {
 public:
  // Room for `max_bytes`, of which nothing is usable yet. UNAVAILABLE without that many addresses,
  // UNSUPPORTED on a GPU whose driver cannot do it.
  static Result<std::unique_ptr<ReservedMemory>> Reserve(MemoryPlace place, size_t max_bytes);
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  char* base() const { return base_; }
  size_t max_bytes() const { return max_bytes_; }
  // Usable, from base() on; zero at first on the CPU.
  size_t byte_size() const { return byte_size_; }

  // At least `byte_size` bytes are usable afterwards; content and addresses stay. INVALID_ARG
  // beyond max_bytes(), UNAVAILABLE when there is no memory left.
  Status Grow(size_t byte_size);

 private:
  ReservedMemory(MemoryPlace place, char* base, size_t max_bytes, size_t granularity)
      : place_(place), base_(base), max_bytes_(max_bytes), granularity_(granularity) {}

  // `byte_size` more, a multiple of the granularity.
  Status Add(size_t byte_size);

  const MemoryPlace place_;
  char* const base_;
  const size_t max_bytes_;
  const size_t granularity_;
  size_t byte_size_ = 0;
  std::vector<std::pair<uint64_t, size_t>> pieces_;  // of a GPU: handle and bytes, in order
};

}  // namespace nereid
