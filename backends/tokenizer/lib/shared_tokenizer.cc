// See shared_tokenizer.h.
#include "backends/tokenizer/lib/shared_tokenizer.h"

#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <map>
#include <mutex>
#include <vector>

namespace nereid::tokenizer {
namespace {

namespace fs = std::filesystem;

// File states by path: of the loaded file and of the tokenizer files in its folder. Each state is
// {device, inode, size, modification time s and ns, change time s and ns}. Absent files have no
// entry.
using Fingerprint = std::map<std::string, std::array<int64_t, 7>>;

Fingerprint FingerprintOf(const fs::path& path) {
  Fingerprint fingerprint;
  const auto add = [&](const fs::path& file) {
    struct stat found;
    if (::stat(file.c_str(), &found) != 0) return;
    fingerprint[file.string()] = {static_cast<int64_t>(found.st_dev),
                                  static_cast<int64_t>(found.st_ino),
                                  static_cast<int64_t>(found.st_size),
                                  found.st_mtim.tv_sec,
                                  found.st_mtim.tv_nsec,
                                  found.st_ctim.tv_sec,
                                  found.st_ctim.tv_nsec};
  };
  std::error_code error;
  const fs::path folder = fs::is_directory(path, error) ? path : path.parent_path();
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const fs::path extension = entry.path().extension();
    if (extension == ".json" || extension == ".model" || extension == ".tiktoken") {
      add(entry.path());
    }
  }
  add(path);
  return fingerprint;
}

// Resolves links to folders but not a link to the file itself: the side files next to the link are
// the ones that are read.
fs::path ResolveFolderLinks(const fs::path& path, std::error_code& error) {
  if (fs::is_directory(path, error)) return fs::weakly_canonical(path, error);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return fs::weakly_canonical(folder, error) / path.filename();
}

struct CacheEntry {
  std::mutex mutex;  // locked during a load
  Fingerprint fingerprint;
  std::weak_ptr<const Tokenizer> tokenizer;
};

class TokenizerCache {
 public:
  std::shared_ptr<CacheEntry> FindOrAdd(const std::string& path) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& cached) {
      if (cached.second.use_count() > 1)
        return false;  // another thread is about to load or is loading
      const std::lock_guard lock(cached.second->mutex);
      return cached.second->tokenizer.expired();
    });
    std::shared_ptr<CacheEntry>& entry = entries_[path];
    if (entry == nullptr) entry = std::make_shared<CacheEntry>();
    return entry;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<CacheEntry>> entries_;  // by path
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> LoadShared(const std::string& path) {
  static TokenizerCache cache;
  std::error_code error;
  const fs::path resolved = ResolveFolderLinks(path, error);
  if (error) return Tokenizer::Load(path);
  const std::shared_ptr<CacheEntry> entry = cache.FindOrAdd(resolved.string());
  const std::lock_guard lock(entry->mutex);
  Fingerprint fingerprint = FingerprintOf(resolved);
  std::shared_ptr<const Tokenizer> cached = entry->tokenizer.lock();
  if (cached != nullptr && entry->fingerprint == fingerprint) return cached;
  NEREID_ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> loaded, Tokenizer::Load(path));
  entry->fingerprint =
      std::move(fingerprint);  // taken before the load: a later change causes a reload
  entry->tokenizer = loaded;
  return loaded;
}

}  // namespace nereid::tokenizer
