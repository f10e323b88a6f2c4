// Shows how much of the weight files a load has read. Engines map the files, so the process's own
// page tables tell it, without any code in the engines. Weights that an engine uses where they are
// mapped are not read during a load.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "host/cli/progress_bar.h"

namespace nereid::cli {

// The resident bytes of the mappings of these files, from the text of /proc/self/smaps.
uint64_t ResidentBytes(std::string_view smaps, const std::set<std::string>& files);

// Updates a progress bar on a thread of its own until it is stopped. [main thread]
class LoadProgress {
 public:
  // `files`: the weight files, without symbolic links. `progress` belongs to the thread until Stop.
  LoadProgress(std::set<std::string> files, uint64_t total_bytes, ProgressBar& progress);
  ~LoadProgress() { Stop(); }
  LoadProgress(const LoadProgress&) = delete;
  LoadProgress& operator=(const LoadProgress&) = delete;

  // Removes the bar.
  void Stop();

 private:
  void Run();

  const std::set<std::string> files_;
  const uint64_t total_bytes_;
  ProgressBar& progress_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace nereid::cli
