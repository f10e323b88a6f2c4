// Memory that the host itself allocates, on the CPU or on a GPU, and copies between memory
// locations. [any thread; one object, one thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

#include "host/core/memory/buffer_attributes.h"
#include "host/core/memory/memory_manager.h"
#include "host/core/memory/reserved_memory.h"
#include "host/core/observe/log.h"
#include "nereid/ext/leased_output.h"
#include "nereid/status.h"

namespace nereid::core {

class OwnedMemory {
 public:
  // Allocates at `requested` if `manager` has free memory there, otherwise in CPU memory. A null
  // manager provides CPU memory only. `manager` must outlive the memory. UNAVAILABLE if no CPU
  // memory is left either.
  static Result<std::shared_ptr<OwnedMemory>> Allocate(MemoryManager* manager,
                                                       MemoryLocation requested, size_t byte_size);
  // Allocates memory that Grow enlarges without moving it, up to `max_bytes`. `location` must not
  // be pinned memory. INVALID_ARG if `byte_size` exceeds `max_bytes`; UNAVAILABLE if memory or
  // addresses are exhausted.
  static Result<std::shared_ptr<OwnedMemory>> AllocateGrowable(MemoryLocation location,
                                                               size_t byte_size, size_t max_bytes);
  ~OwnedMemory();
  OwnedMemory(const OwnedMemory&) = delete;
  OwnedMemory& operator=(const OwnedMemory&) = delete;

  char* base() const { return base_; }
  size_t byte_size() const { return byte_size_; }
  MemoryLocation location() const { return location_; }

  bool is_growable() const { return reserved_ != nullptr; }
  // Makes the memory at least `byte_size` bytes large and keeps its content. Only for growable
  // memory.
  Status Grow(size_t byte_size);

 private:
  OwnedMemory(MemoryManager* manager, char* base, size_t byte_size, MemoryLocation location)
      : manager_(manager), base_(base), byte_size_(byte_size), location_(location) {}
  OwnedMemory(std::unique_ptr<ReservedMemory> reserved, MemoryLocation location)
      : base_(reserved->base()),
        byte_size_(reserved->byte_size()),
        location_(location),
        reserved_(std::move(reserved)) {}

  MemoryManager* const manager_ = nullptr;
  char* const base_;
  size_t byte_size_;
  const MemoryLocation location_;
  std::unique_ptr<ReservedMemory> reserved_;  // null: the memory is not growable
};

// Copies `byte_size` bytes and returns when the copy is complete. UNSUPPORTED for GPU memory on a
// machine without a CUDA driver.
Status CopyMemory(void* to, MemoryLocation to_location, const void* from,
                  MemoryLocation from_location, size_t byte_size);

// Calls a backend's release function for memory that the host or a client used (leased outputs and
// posted input buffers). An exception of the backend is logged and not propagated, because the
// callers are destructors and C callbacks. [any thread]
inline void CallReleaseFunction(NEREID_ReleaseFn_t release_fn, void* release_userp) noexcept {
  try {
    release_fn(release_userp);
  } catch (const std::exception& e) {
    NEREID_LOG_ERROR("the release function of a backend's memory threw an exception: ", e.what());
  } catch (...) {
    NEREID_LOG_ERROR("the release function of a backend's memory threw an unknown exception");
  }
}

}  // namespace nereid::core
