// One thread a GPU, and a place where these threads meet. No CUDA here.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "nereid/status.h"

namespace nereid::gpu {

// Runs the same work for every rank: rank 0 on the caller's thread, each other one on a thread of
// its own, which lives as long as this. [one caller at a time]
class RankThreads {
 public:
  // `on_fault` is called by the rank that fails first, while others may yet be at work: it wakes
  // them. It may be called once for each Run.
  RankThreads(int32_t count, std::function<void()> on_fault);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Returns when all ranks have; the fault that came first, since others follow from it.
  Status Run(const std::function<Status(int32_t rank)>& work);

 private:
  void Serve(int32_t rank);
  void Work(const std::function<Status(int32_t rank)>& work, int32_t rank);

  const std::function<void()> on_fault_;
  std::mutex mutex_;
  std::condition_variable started_, ended_;
  const std::function<Status(int32_t rank)>* work_ = nullptr;
  int64_t turn_ = 0;
  int32_t num_at_work_ = 0;
  bool stops_ = false;
  Status fault_;
  std::vector<std::thread> threads_;
};

// Where all ranks wait for each other. [any thread]
class MeetingPlace {
 public:
  explicit MeetingPlace(int32_t count) : count_(count) {}

  // Returns when all have called: the least value that one of them gave. UNAVAILABLE once broken.
  Result<int64_t> Meet(int64_t value = 0);
  // Wakes who waits, and lets none wait again: one of them will not come.
  void Break();

 private:
  const int32_t count_;
  std::mutex mutex_;
  std::condition_variable met_;
  int32_t num_waiting_ = 0;
  int64_t turn_ = 0;
  int64_t least_ = 0, last_least_ = 0;
  bool is_broken_ = false;
};

}  // namespace nereid::gpu
