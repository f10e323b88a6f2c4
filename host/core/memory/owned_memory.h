// Memory of the host's own, wherever it lies, and copies between memories. [any thread; one object,
// one thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "memory/memory_manager.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid {

struct MemoryPlace {
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t type_id = 0;

  bool is_gpu() const { return type == TRITONSERVER_MEMORY_GPU; }
  bool operator==(const MemoryPlace&) const = default;
};

class OwnedMemory {
 public:
  // At `wish` where `manager`, which outlives the memory, has room there, else in CPU memory; a
  // null manager has CPU memory alone. UNAVAILABLE when there is none either.
  static Result<std::shared_ptr<OwnedMemory>> Allocate(MemoryManager* manager, MemoryPlace wish,
                                                       size_t byte_size);
  ~OwnedMemory();
  OwnedMemory(const OwnedMemory&) = delete;
  OwnedMemory& operator=(const OwnedMemory&) = delete;

  char* base() const { return base_; }
  size_t byte_size() const { return byte_size_; }
  MemoryPlace place() const { return place_; }

 private:
  OwnedMemory(MemoryManager* manager, char* base, size_t byte_size, MemoryPlace place)
      : manager_(manager), base_(base), byte_size_(byte_size), place_(place) {}

  MemoryManager* const manager_;
  char* const base_;
  const size_t byte_size_;
  const MemoryPlace place_;
};

// Returns when the bytes are there. UNSUPPORTED for memory of a GPU on a machine without a driver.
Status CopyMemory(void* to, MemoryPlace to_place, const void* from, MemoryPlace from_place,
                  size_t byte_size);

}  // namespace nereid
