// Callbacks for requests of the host's own, whose outputs nobody reads: buffers come from the heap.
// [any thread]
#pragma once

#include "host/core/request/response_allocator.h"

namespace nereid {

extern const ResponseAllocator kHeapAllocator;

}  // namespace nereid
