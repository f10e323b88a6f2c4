#include "host/cli/load_progress.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/file_content.h"
#include "base/thread.h"

namespace nereid::cli {

uint64_t ResidentBytes(std::string_view smaps, const std::set<std::string>& files) {
  uint64_t num_bytes = 0;
  bool is_wanted = false;  // the mapping whose lines are being read
  while (!smaps.empty()) {
    const size_t end = std::min(smaps.find('\n'), smaps.size());
    const std::string_view line = smaps.substr(0, end);
    smaps.remove_prefix(std::min(end + 1, smaps.size()));
    const size_t first_word = std::min(line.find(' '), line.size());
    if (first_word > 0 && line[first_word - 1] != ':') {  // "<addresses> ... <path>"
      const size_t slash = line.find('/');
      is_wanted =
          slash != std::string_view::npos && files.contains(std::string(line.substr(slash)));
    } else if (is_wanted && line.starts_with("Rss:")) {
      num_bytes += std::strtoull(std::string(line.substr(4)).c_str(), nullptr, 10) * 1024;
    }
  }
  return num_bytes;
}

LoadProgress::LoadProgress(std::set<std::string> files, uint64_t total_bytes, ProgressBar& progress)
    : files_(std::move(files)), total_bytes_(total_bytes), progress_(progress) {
  thread_ = StartThread([this] { Run(); });
}

void LoadProgress::Stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
  progress_.Erase();
}

void LoadProgress::Run() {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kMaxBytes = size_t{64} << 20;
  uint64_t most_bytes = 0;  // an engine may give pages back
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    lock.unlock();
    const Clock::time_point start = Clock::now();
    const Result<std::string> smaps = ReadFileBeginning("/proc/self/smaps", kMaxBytes);
    if (smaps.ok()) most_bytes = std::max(most_bytes, ResidentBytes(*smaps, files_));
    progress_.Update("loading weights", std::min(most_bytes, total_bytes_), total_bytes_);
    // The kernel walks the page tables of large mappings for each reading, so readings take at most
    // a tenth of the time.
    const auto pause =
        std::max<Clock::duration>(std::chrono::milliseconds(200), 10 * (Clock::now() - start));
    lock.lock();
    stopped_.wait_for(lock, pause, [this] { return is_stopping_; });
  }
}

}  // namespace nereid::cli
