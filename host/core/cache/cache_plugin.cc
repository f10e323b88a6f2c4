#include "host/core/cache/cache_plugin.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "host/core/backend/plugin.h"
#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

namespace fs = std::filesystem;

Result<std::string> FindLibrary(const std::string& name, const std::vector<std::string>& dirs) {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) {
    return InvalidArgError("cache: expected a name, got '", name, "'");
  }
  std::string searched;
  for (const std::string& dir : dirs) {
    const fs::path path = fs::path(dir) / name / StrCat("libtritoncache_", name, ".so");
    std::error_code error;
    if (fs::is_regular_file(path, error)) return path.string();
    searched += StrCat(searched.empty() ? "" : ", ", path.string());
  }
  return NotFoundError("unable to find the library of cache '", name, "'; looked for ", searched);
}

}  // namespace

Result<std::unique_ptr<CachePlugin>> CachePlugin::Load(const std::string& name,
                                                       const std::string& config_json,
                                                       const std::vector<std::string>& dirs) {
  NEREID_ASSIGN_OR_RETURN(const std::string path, FindLibrary(name, dirs));
  NEREID_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Open(path));
  EntryPoints entry;
  const char* missing = nullptr;
#define NEREID_FIND(member, symbol)                       \
  entry.member = library.Find<decltype(symbol)>(#symbol); \
  if (entry.member == nullptr && missing == nullptr) missing = #symbol
  NEREID_FIND(initialize, TRITONCACHE_CacheInitialize);
  NEREID_FIND(finalize, TRITONCACHE_CacheFinalize);
  NEREID_FIND(insert, TRITONCACHE_CacheInsert);
  NEREID_FIND(lookup, TRITONCACHE_CacheLookup);
#undef NEREID_FIND
  if (missing != nullptr) {
    return NotFoundError("cache library '", path, "' does not export ", missing);
  }
  std::unique_ptr<CachePlugin> plugin(new CachePlugin(name, entry));
  Status status = GuardedCall(name, "CacheInitialize", [&] {
    return entry.initialize(&plugin->cache_, config_json.c_str());
  });
  if (!status.ok()) {
    plugin->cache_ = nullptr;
    return std::move(status).WithContext(StrCat("cache '", name, "' failed to initialise"));
  }
  NEREID_LOG_INFO("response cache '", name, "' (", path, ") with ", config_json);
  return plugin;
}

CachePlugin::~CachePlugin() {
  if (cache_ == nullptr) return;
  const Status status =
      GuardedCall(name_, "CacheFinalize", [&] { return entry_points_.finalize(cache_); });
  if (!status.ok()) NEREID_LOG_ERROR("cache '", name_, "' failed to finalise: ", status.message());
}

Status CachePlugin::Insert(const std::string& key, CacheEntry* entry, CacheAllocator* allocator) {
  return GuardedCall(name_, "CacheInsert", [&] {
    return entry_points_.insert(cache_, key.c_str(), ToHandle(entry), ToHandle(allocator));
  });
}

Status CachePlugin::Lookup(const std::string& key, CacheEntry* entry, CacheAllocator* allocator) {
  return GuardedCall(name_, "CacheLookup", [&] {
    return entry_points_.lookup(cache_, key.c_str(), ToHandle(entry), ToHandle(allocator));
  });
}

}  // namespace nereid::core
