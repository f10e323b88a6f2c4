// A cache library `libtritoncache_<name>.so`. It is loaded and initialised once and used by all
// models. [any thread]
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/core/backend/plugin.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/memory/buffer_attributes.h"
#include "nereid/status.h"
#include "triton/core/tritoncache.h"

namespace nereid::core {

// TRITONCACHE_CacheEntry and TRITONCACHE_Allocator: the buffers of one cached response and the
// copier that fills or reads them. A cache uses them during one Insert or Lookup. [one thread]
struct CacheEntry {
  struct Buffer {
    void* base = nullptr;
    BufferAttributes attributes;
  };
  std::vector<Buffer> buffers;
};

// Copies between a response and the buffers of an entry. The cache must have set the buffers
// before.
class CacheAllocator {
 public:
  virtual ~CacheAllocator() = default;
  virtual Status Copy(const CacheEntry& entry) = 0;
};

class CachePlugin {
 public:
  // Searches `dirs` in order for <dir>/<name>/libtritoncache_<name>.so. `config_json` is passed to
  // the cache unchanged. NOT_FOUND lists the searched paths. The first existing file is the result,
  // even if it fails to load.
  static Result<std::unique_ptr<CachePlugin>> Load(const std::string& name,
                                                   const std::string& config_json,
                                                   const std::vector<std::string>& dirs);
  // Finalizes the cache.
  ~CachePlugin();
  CachePlugin(const CachePlugin&) = delete;
  CachePlugin& operator=(const CachePlugin&) = delete;

  const std::string& name() const { return name_; }
  // ALREADY_EXISTS if the cache contains the key.
  Status Insert(const std::string& key, CacheEntry* entry, CacheAllocator* allocator);
  // NOT_FOUND is a cache miss.
  Status Lookup(const std::string& key, CacheEntry* entry, CacheAllocator* allocator);

 private:
  struct EntryPoints {
    decltype(&TRITONCACHE_CacheInitialize) initialize = nullptr;
    decltype(&TRITONCACHE_CacheFinalize) finalize = nullptr;
    decltype(&TRITONCACHE_CacheInsert) insert = nullptr;
    decltype(&TRITONCACHE_CacheLookup) lookup = nullptr;
  };

  CachePlugin(std::string name, const EntryPoints& entry_points)
      : name_(std::move(name)), entry_points_(entry_points) {}

  const std::string name_;
  const EntryPoints entry_points_;
  TRITONCACHE_Cache* cache_ = nullptr;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONCACHE_CacheEntry, nereid::core::CacheEntry);
NEREID_HANDLE(TRITONCACHE_Allocator, nereid::core::CacheAllocator);
