// Bounds what one ensemble holds in memory: a decoupled step that produces faster than the steps
// after it consume is made to wait. That wait, on the producing model's thread, is the only
// back-pressure that the C API allows; it happens only at the limit. [any thread]
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
  // ensemble_scheduling.max_inflight_requests; 0: by bytes alone.
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

  // Called before a response is handed to `consumers`. Returns at once below the limits, and when
  // no consumer is running, since then waiting would free nothing. Otherwise waits until there is
  // room or `stop` says so; UNAVAILABLE after max_wait.
  Status WaitForRoom(std::span<const int> consumers, const std::function<bool()>& stop);
  // Makes waiters look at their `stop` again.
  void Wake();

 private:
  bool HasRoom(std::span<const int> consumers) const;

  const InflightLimits limits_;
  std::vector<std::atomic<uint64_t>> running_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<int> num_waiters_{0};
  std::mutex mutex_;  // guards nothing but the sleep of waiters
  std::condition_variable changed_;
};

}  // namespace nereid::ensemble
