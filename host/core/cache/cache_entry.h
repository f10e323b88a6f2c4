// The buffers of one cached response and who copies them: TRITONCACHE_CacheEntry and
// TRITONCACHE_Allocator, as a cache sees them during one Insert or Lookup. [one thread]
#pragma once

#include <utility>
#include <vector>

#include "host/core/handle/handle_cast.h"
#include "host/core/memory/buffer_attributes.h"
#include "nereid/status.h"
#include "triton/core/tritoncache.h"

namespace nereid {

struct CacheEntry {
  struct Buffer {
    void* base = nullptr;
    BufferAttributes attributes;
  };
  std::vector<Buffer> buffers;
};

// Copies between a response and an entry's buffers, which the cache has set by then.
class CacheAllocator {
 public:
  virtual ~CacheAllocator() = default;
  virtual Status Copy(const CacheEntry& entry) = 0;
};

}  // namespace nereid

NEREID_HANDLE(TRITONCACHE_CacheEntry, nereid::CacheEntry);
NEREID_HANDLE(TRITONCACHE_Allocator, nereid::CacheAllocator);
