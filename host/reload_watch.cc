#include "host/reload_watch.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "base/thread.h"
#include "host/log.h"

namespace nereid {
namespace {

constexpr std::chrono::seconds kPollInterval(1);

std::atomic<bool> is_reload_requested{false};

void OnHangup(int) {
  is_reload_requested.store(true);
}

// Differs after a file was written, replaced, created or removed. Symbolic links are followed.
std::string StateOf(const std::vector<std::string>& paths) {
  std::string state;
  for (const std::string& path : paths) {
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0) {
      state += "absent;";
      continue;
    }
    state += StrCat(info.st_dev, " ", info.st_ino, " ", info.st_size, " ", info.st_mtim.tv_sec, ".",
                    info.st_mtim.tv_nsec, " ", info.st_ctim.tv_sec, ".", info.st_ctim.tv_nsec, ";");
  }
  return state;
}

}  // namespace

ReloadWatch::~ReloadWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ReloadWatch::Add(std::string what, std::vector<std::string> paths,
                      std::function<Status()> reload) {
  std::erase(paths, std::string());
  std::string state = StateOf(paths);
  entries_.push_back({std::move(what), std::move(paths), std::move(reload), std::move(state)});
}

void ReloadWatch::Start() {
  // A terminal that is closed ends a server in it that has nothing to read again.
  if (entries_.empty() && isatty(STDIN_FILENO) != 0) return;
  struct sigaction action = {};
  action.sa_handler = &OnHangup;
  action.sa_flags = SA_RESTART;
  sigaction(SIGHUP, &action, nullptr);
  if (entries_.empty()) return;
  thread_ = StartThread([this] {
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, kPollInterval, [this] { return is_stopping_; })) {
      CheckAll(is_reload_requested.exchange(false));
    }
  });
}

void ReloadWatch::CheckAll(bool is_forced) {
  for (Entry& entry : entries_) {
    // The state is taken before the files are read, so a later change is noticed next time.
    std::string state = StateOf(entry.paths);
    if (!is_forced && state == entry.state) continue;
    entry.state = std::move(state);
    const Status status = entry.reload();
    if (status.ok()) {
      LogInfo("reloaded ", entry.what);
    } else {
      LogError("kept the previous ", entry.what, ": ", status.message());
    }
  }
}

}  // namespace nereid
