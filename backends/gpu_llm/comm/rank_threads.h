// One host thread for each GPU of a model, and a barrier for these threads. No CUDA here.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "nereid/status.h"

namespace nereid::gpu {

// Runs the same function for every rank: rank 0 on the caller's thread, every other rank on a
// thread that lives as long as this object. [one caller at a time]
class RankThreads {
 public:
  // `on_fault` is called by the rank that fails first, at most once for each Run(), while other
  // ranks may still run. It makes the other ranks stop waiting.
  RankThreads(int32_t count, std::function<void()> on_fault);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Returns when all ranks have returned. The result is the first error, since others follow from
  // it. UNAVAILABLE, without any work, if the system has not started a thread for each rank.
  Status Run(const std::function<Status(int32_t rank)>& work);

 private:
  void ThreadLoop(int32_t rank);
  void RunRank(const std::function<Status(int32_t rank)>& work, int32_t rank);

  const int32_t count_;
  const std::function<void()> on_fault_;
  std::mutex mutex_;
  std::condition_variable started_, ended_;
  const std::function<Status(int32_t rank)>* work_ = nullptr;
  int64_t run_index_ = 0;
  int32_t num_running_ = 0;
  bool stops_ = false;
  Status fault_;
  std::vector<std::thread> threads_;
};

// Barrier of all ranks. [any thread]
class PeerBarrier {
 public:
  explicit PeerBarrier(int32_t count) : count_(count) {}

  // Returns when all ranks have called it: the minimum of their values. UNAVAILABLE once broken.
  Result<int64_t> WaitForAll(int64_t value = 0);
  // Wakes the waiting ranks and makes all later waits fail, because one rank will not arrive.
  void Break();

 private:
  const int32_t count_;
  std::mutex mutex_;
  std::condition_variable met_;
  int32_t num_waiting_ = 0;
  int64_t run_index_ = 0;
  int64_t min_ = 0, last_min_ = 0;
  bool is_broken_ = false;
};

}  // namespace nereid::gpu
