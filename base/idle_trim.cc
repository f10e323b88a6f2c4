#include "base/idle_trim.h"

#include <malloc.h>

#include <utility>

#include "base/mapped_blocks.h"

// Defined by mimalloc if the program is linked with it.
extern "C" [[gnu::weak]] void mi_collect(bool force);

namespace nereid {
namespace {

// Returns free memory to the system: with mimalloc that of the calling thread and of threads that
// have ended, with glibc's allocator that of all threads.
void ReleaseFreeMemory() {
  MappedBlocks::Trim();
  if (mi_collect != nullptr) {
    mi_collect(true);
  } else {
    // glibc's allocator initializes itself at its first call, without a lock. If another allocator
    // replaces it (a sanitizer's or a preloaded one), this is the first call, and several threads
    // may make it at once.
    static const bool is_ready = (malloc_trim(0), true);
    if (is_ready) malloc_trim(0);
  }
}

}  // namespace

void IdleTrim::Tick(uint64_t num_requests, size_t num_running) {
  const bool is_idle = num_requests == num_requests_seen_ && num_running == 0;
  num_requests_seen_ = num_requests;
  if (!is_idle) {
    is_trimmed_ = false;
  } else if (!std::exchange(is_trimmed_, true)) {
    ReleaseFreeMemory();
  }
}

}  // namespace nereid
