// Counts calls of the allocator and of lock functions in the whole process by interposing them
// (call_counters.cc). [any thread]
#pragma once

#include <cstdint>

struct CallCounts {
  uint64_t allocations = 0;  // malloc, calloc, realloc, aligned_alloc; operator new calls them
  uint64_t locks = 0;        // pthread_mutex_lock
  uint64_t signals = 0;      // pthread_cond_signal and _broadcast
};

CallCounts ReadCallCounts();
