// Limits the memory of one ensemble: if a decoupled step produces faster than the following steps
// consume, it has to wait. The wait blocks the thread of the producing model. This is the only
// back-pressure that the C API allows, and it occurs only at the limit. [any thread]
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "nereid/status.h"

namespace nereid::ensemble {

struct InflightLimits {
  // ensemble_scheduling.max_inflight_requests; 0: only bytes are limited.
  uint64_t max_requests_per_step = 0;
  uint64_t max_bytes = uint64_t{256} << 20;  // of tensors between steps
  std::chrono::milliseconds max_wait{30'000};
};

class InflightLimiter {
 public:
  InflightLimiter(size_t num_steps, const InflightLimits& limits);

  void OnStepStarted(int step) { running_[step].fetch_add(1, std::memory_order_relaxed); }
  void OnStepEnded(int step);
  void OnBytesHeld(uint64_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void OnBytesFreed(uint64_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t bytes_held() const { return bytes_.load(std::memory_order_relaxed); }

  // Call it before a response is passed to `consumers`. Returns at once below the limits, and if no
  // consumer is running, because waiting would free nothing then. Otherwise waits until there is
  // capacity or `stop` returns true. UNAVAILABLE after max_wait.
  Status WaitForCapacity(std::span<const int> consumers, const std::function<bool()>& stop);
  // Makes waiting threads evaluate their `stop` again.
  void Wake();

 private:
  bool HasCapacity(std::span<const int> consumers) const;

  const InflightLimits limits_;
  std::vector<std::atomic<uint64_t>> running_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<int> num_waiters_{0};
  std::mutex mutex_;  // only for the condition variable; the counters are atomic
  std::condition_variable changed_;
};

}  // namespace nereid::ensemble
