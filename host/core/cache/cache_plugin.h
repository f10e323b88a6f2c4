// A cache library `libtritoncache_<name>.so`: opened and initialised once, asked by every model.
// [any thread]
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/core/backend/shared_library.h"
#include "host/core/cache/cache_entry.h"
#include "nereid/status.h"
#include "triton/core/tritoncache.h"

namespace nereid {

class CachePlugin {
 public:
  // Looks for <dir>/<name>/libtritoncache_<name>.so in order. `config_json` is the cache's own
  // business. NOT_FOUND lists where it looked; a file that was found is the answer.
  static Result<std::unique_ptr<CachePlugin>> Load(const std::string& name,
                                                   const std::string& config_json,
                                                   const std::vector<std::string>& dirs);
  // Finalises the cache.
  ~CachePlugin();
  CachePlugin(const CachePlugin&) = delete;
  CachePlugin& operator=(const CachePlugin&) = delete;

  const std::string& name() const { return name_; }
  // ALREADY_EXISTS when the key is taken.
  Status Insert(const std::string& key, CacheEntry* entry, CacheAllocator* allocator);
  // NOT_FOUND is a miss.
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

}  // namespace nereid
