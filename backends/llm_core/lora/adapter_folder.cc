// Compares inode, size and time of the files of each adapter with those of the scan before.
#include "backends/llm_core/lora/adapter_folder.h"

#include <sys/stat.h>

#include <filesystem>
#include <utility>

#include "backends/llm_core/lora/peft_adapter.h"
#include "base/thread.h"

namespace nereid::llm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxAdapters = 65536;

// Changes whenever the file is replaced or written; empty if there is no such file.
std::string StateOf(const std::string& path) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) return "";
  return StrCat(found.st_ino, ":", found.st_size, ":", found.st_mtim.tv_sec, ":",
                found.st_mtim.tv_nsec, ";");
}

// Empty unless the folder has both files of an adapter.
std::string StateOfAdapter(const std::string& folder) {
  const std::string config = StateOf(StrCat(folder, "/", kPeftConfigFile));
  const std::string weights = StateOf(StrCat(folder, "/", kPeftWeightsFile));
  return config.empty() || weights.empty() ? "" : config + weights;
}

std::map<std::string, std::string> StatesIn(const std::string& folder) {
  std::map<std::string, std::string> states;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (states.size() >= kMaxAdapters || !CheckAdapterName(name).ok()) continue;
    std::string state = StateOfAdapter(entry->path().string());
    if (!state.empty()) states.emplace(name, std::move(state));
  }
  return states;
}

}  // namespace

Result<std::unique_ptr<AdapterFolder>> AdapterFolder::Open(std::string folder,
                                                           AdapterRegistry& registry,
                                                           OnError on_error,
                                                           std::chrono::milliseconds period) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    return NotFoundError("'", folder, "': no such folder of LoRA adapters");
  }
  std::unique_ptr<AdapterFolder> opened(
      new AdapterFolder(std::move(folder), registry, std::move(on_error)));
  opened->Scan();
  opened->thread_ = StartThread([self = opened.get(), period] { self->Watch(period); });
  return opened;
}

AdapterFolder::~AdapterFolder() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void AdapterFolder::Watch(std::chrono::milliseconds period) {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, period, [this] { return stop_; })) {
    lock.unlock();
    Scan();
    lock.lock();
  }
}

void AdapterFolder::Scan() {
  std::map<std::string, std::string> states = StatesIn(folder_);
  for (const auto& [name, state] : seen_) {
    if (!states.contains(name)) registry_.Unload(name);
  }
  for (const auto& [name, state] : states) {
    const auto before = seen_.find(name);
    if (before != seen_.end() && before->second == state) continue;
    // An adapter whose new files are refused stays as it was.
    if (const Status loaded = registry_.Load(name, StrCat(folder_, "/", name)); !loaded.ok()) {
      on_error_(loaded);
    }
  }
  seen_ = std::move(states);
}

}  // namespace nereid::llm
