// Runs and barrier rounds are counted, so that a thread that wakes late does not mistake the next
// one for its own.
#include "backends/gpu_llm/comm/rank_threads.h"

#include <algorithm>

#include "base/thread.h"

namespace nereid::gpu {

RankThreads::RankThreads(int32_t count, std::function<void()> on_fault)
    : count_(count), on_fault_(std::move(on_fault)) {
  StartThreads(
      static_cast<size_t>(count - 1), [this](size_t i) { ThreadLoop(static_cast<int32_t>(i) + 1); },
      threads_);
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status RankThreads::Run(const std::function<Status(int32_t rank)>& work) {
  if (std::ssize(threads_) + 1 < count_) {
    return UnavailableError("the system starts ", threads_.size() + 1, " threads for ", count_,
                            " GPUs, which need one each");
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    fault_ = Status();
    num_running_ = static_cast<int32_t>(threads_.size());
    ++run_index_;
  }
  started_.notify_all();
  RunRank(work, 0);
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return num_running_ == 0; });
  return fault_;
}

void RankThreads::ThreadLoop(int32_t rank) {
  for (int64_t turn = 1;; ++turn) {
    const std::function<Status(int32_t)>* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      started_.wait(lock, [&] { return stops_ || run_index_ >= turn; });
      if (run_index_ < turn) return;
      work = work_;
    }
    RunRank(*work, rank);
    const std::lock_guard lock(mutex_);
    if (--num_running_ == 0) ended_.notify_all();
  }
}

void RankThreads::RunRank(const std::function<Status(int32_t rank)>& work, int32_t rank) {
  Status status = work(rank);
  if (status.ok()) return;
  {
    const std::lock_guard lock(mutex_);
    if (!fault_.ok()) return;
    fault_ = std::move(status);
  }
  on_fault_();
}

Result<int64_t> PeerBarrier::WaitForAll(int64_t value) {
  std::unique_lock lock(mutex_);
  const auto broken = [] { return UnavailableError("another GPU of the model has failed"); };
  if (is_broken_) return broken();
  min_ = num_waiting_ == 0 ? value : std::min(min_, value);
  if (++num_waiting_ == count_) {
    num_waiting_ = 0;
    last_min_ = min_;
    ++run_index_;
    met_.notify_all();
    return last_min_;
  }
  const int64_t turn = run_index_;
  met_.wait(lock, [&] { return run_index_ != turn || is_broken_; });
  if (run_index_ == turn) return broken();
  return last_min_;
}

void PeerBarrier::Break() {
  {
    const std::lock_guard lock(mutex_);
    is_broken_ = true;
  }
  met_.notify_all();
}

}  // namespace nereid::gpu
