#include "backends/ensemble/inflight_limiter.h"

#include <algorithm>

namespace nereid::ensemble {

InflightLimiter::InflightLimiter(size_t num_steps, const InflightLimits& limits)
    : limits_(limits), running_(num_steps) {}

void InflightLimiter::OnStepEnded(int step) {
  running_[step].fetch_sub(1);
  Wake();
}

void InflightLimiter::Wake() {
  if (num_waiters_.load() == 0) return;
  // Locked once, so that a waiting thread is either before its check or already asleep.
  { std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

bool InflightLimiter::HasCapacity(std::span<const int> consumers) const {
  uint64_t total = 0, most = 0;
  for (const int step : consumers) {
    const uint64_t running = running_[step].load();
    total += running;
    most = std::max(most, running);
  }
  if (total == 0) return true;
  if (limits_.max_requests_per_step > 0 && most >= limits_.max_requests_per_step) return false;
  return bytes_held() <= limits_.max_bytes;
}

Status InflightLimiter::WaitForCapacity(std::span<const int> consumers,
                                        const std::function<bool()>& stop) {
  if (HasCapacity(consumers)) return {};
  num_waiters_.fetch_add(1);
  std::unique_lock lock(mutex_);
  const bool done =
      changed_.wait_for(lock, limits_.max_wait, [&] { return HasCapacity(consumers) || stop(); });
  num_waiters_.fetch_sub(1);
  if (done) return {};
  return UnavailableError("the following steps did not free capacity within ",
                          limits_.max_wait.count(), " ms; limits: max_inflight_requests ",
                          limits_.max_requests_per_step, ", bytes between steps ",
                          limits_.max_bytes, ", in use ", bytes_held());
}

}  // namespace nereid::ensemble
