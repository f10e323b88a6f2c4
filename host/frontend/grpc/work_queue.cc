// See work_queue.h.
#include "work_queue.h"

namespace nereid {

WorkQueue::WorkQueue(int num_threads, size_t max_pending) : max_pending_(max_pending) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Run(); });
}

void WorkQueue::Close() {
  std::deque<std::function<void()>> dropped;  // destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    dropped.swap(pending_);
  }
  changed_.notify_all();
}

size_t WorkQueue::num_tasks() const {
  const std::lock_guard lock(mutex_);
  return pending_.size() + num_running_;
}

WorkQueue::~WorkQueue() {
  Close();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkQueue::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_ || pending_.size() >= max_pending_) return false;
    pending_.push_back(std::move(task));
  }
  changed_.notify_one();
  return true;
}

void WorkQueue::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_stopping_ || !pending_.empty(); });
    if (pending_.empty()) return;
    std::function<void()> task = std::move(pending_.front());
    pending_.pop_front();
    ++num_running_;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    --num_running_;
  }
}

}  // namespace nereid
