// Memory of the host's own, wherever it lies, and copies between memories. [any thread; one object,
// one thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "host/core/memory/memory_manager.h"
#include "host/core/memory/memory_place.h"
#include "host/core/memory/reserved_memory.h"
#include "nereid/status.h"

namespace nereid {

class OwnedMemory {
 public:
  // At `wish` where `manager`, which outlives the memory, has room there, else in CPU memory; a
  // null manager has CPU memory alone. UNAVAILABLE when there is none either.
  static Result<std::shared_ptr<OwnedMemory>> Allocate(MemoryManager* manager, MemoryPlace wish,
                                                       size_t byte_size);
  // At `place`, which is not pinned, in memory that Grow makes larger where it is, up to
  // `max_bytes`. INVALID_ARG when it is larger already, UNAVAILABLE without room or addresses.
  static Result<std::shared_ptr<OwnedMemory>> AllocateGrowable(MemoryPlace place, size_t byte_size,
                                                               size_t max_bytes);
  ~OwnedMemory();
  OwnedMemory(const OwnedMemory&) = delete;
  OwnedMemory& operator=(const OwnedMemory&) = delete;

  char* base() const { return base_; }
  size_t byte_size() const { return byte_size_; }
  MemoryPlace place() const { return place_; }

  bool is_growable() const { return reserved_ != nullptr; }
  // At least `byte_size` bytes are here afterwards, and all that was. [of growable memory]
  Status Grow(size_t byte_size);

 private:
  OwnedMemory(MemoryManager* manager, char* base, size_t byte_size, MemoryPlace place)
      : manager_(manager), base_(base), byte_size_(byte_size), place_(place) {}
  OwnedMemory(std::unique_ptr<ReservedMemory> reserved, MemoryPlace place)
      : base_(reserved->base()),
        byte_size_(reserved->byte_size()),
        place_(place),
        reserved_(std::move(reserved)) {}

  MemoryManager* const manager_ = nullptr;
  char* const base_;
  size_t byte_size_;
  const MemoryPlace place_;
  std::unique_ptr<ReservedMemory> reserved_;  // null: as large as it is
};

// Returns when the bytes are there. UNSUPPORTED for memory of a GPU on a machine without a driver.
Status CopyMemory(void* to, MemoryPlace to_place, const void* from, MemoryPlace from_place,
                  size_t byte_size);

}  // namespace nereid
