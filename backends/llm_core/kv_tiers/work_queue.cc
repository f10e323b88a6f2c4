// The queue's thread and those that wait for it.
#include "backends/llm_core/kv_tiers/work_queue.h"

#include <utility>

#include "base/thread.h"

namespace nereid::llm {

WorkQueue::WorkQueue(size_t max_jobs) : max_jobs_(max_jobs) {
  thread_ = StartThread([this] { Run(); });
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

uint64_t WorkQueue::Push(Job job) {
  uint64_t number = 0;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return jobs_.size() < max_jobs_; });
    jobs_.push_back(std::move(job));
    number = ++num_pushed_;
  }
  changed_.notify_all();
  return number;
}

void WorkQueue::WaitFor(uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_done_ >= number; });
}

uint64_t WorkQueue::num_pushed() const {
  const std::lock_guard lock(mutex_);
  return num_pushed_;
}

bool WorkQueue::is_full() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size() >= max_jobs_;
}

void WorkQueue::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stops_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
    ++num_done_;
    changed_.notify_all();
  }
}

}  // namespace nereid::llm
