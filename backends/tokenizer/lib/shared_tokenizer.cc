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

// Of a folder and the files in it, or of a file and those beside it: when and how they were
// written. Empty where nothing is there.
using Stamp = std::map<std::string, std::array<int64_t, 7>>;

Stamp StampOf(const fs::path& path) {
  Stamp stamp;
  const auto add = [&](const fs::path& file) {
    struct stat found;
    if (::stat(file.c_str(), &found) != 0) return;
    stamp[file.string()] = {static_cast<int64_t>(found.st_dev),
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
  return stamp;
}

// The path without links, but for the last part of a file's: those beside the link are read too.
fs::path WithoutLinks(const fs::path& path, std::error_code& error) {
  if (fs::is_directory(path, error)) return fs::weakly_canonical(path, error);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return fs::weakly_canonical(folder, error) / path.filename();
}

struct Entry {
  std::mutex mutex;  // held while it loads
  Stamp stamp;
  std::weak_ptr<const Tokenizer> tokenizer;
};

class Registry {
 public:
  std::shared_ptr<Entry> EntryOf(const std::string& path) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& known) {
      if (known.second.use_count() > 1) return false;  // somebody is about to load, or does
      const std::lock_guard lock(known.second->mutex);
      return known.second->tokenizer.expired();
    });
    std::shared_ptr<Entry>& entry = entries_[path];
    if (entry == nullptr) entry = std::make_shared<Entry>();
    return entry;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> entries_;  // by path
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> LoadShared(const std::string& path) {
  static Registry registry;
  std::error_code error;
  const fs::path whole = WithoutLinks(path, error);
  if (error) return Tokenizer::Load(path);
  const std::shared_ptr<Entry> entry = registry.EntryOf(whole.string());
  const std::lock_guard lock(entry->mutex);
  Stamp stamp = StampOf(whole);
  std::shared_ptr<const Tokenizer> known = entry->tokenizer.lock();
  if (known != nullptr && entry->stamp == stamp) return known;
  NEREID_ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> loaded, Tokenizer::Load(path));
  entry->stamp = std::move(stamp);  // from before: what was written since is read next time
  entry->tokenizer = loaded;
  return loaded;
}

}  // namespace nereid::tokenizer
