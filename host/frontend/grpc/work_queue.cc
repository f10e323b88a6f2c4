// See work_queue.h.
#include "host/frontend/grpc/work_queue.h"

#include <system_error>

#include "base/thread.h"

namespace nereid {

WorkQueue::WorkQueue(int max_threads, size_t max_pending)
    : max_threads_(static_cast<size_t>(max_threads)), max_pending_(max_pending) {}

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
  for (std::thread& thread : threads_) thread.join();  // a closed queue starts no threads
}

bool WorkQueue::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_ || pending_.size() >= max_pending_) return false;
    pending_.push_back(std::move(task));
    if (!HasThread()) {
      pending_.pop_back();
      return false;
    }
  }
  changed_.notify_one();
  return true;
}

// Starts another thread if all are busy and the maximum is not reached. Returns true if any thread
// exists. Requires mutex_.
bool WorkQueue::HasThread() {
  if (pending_.size() <= num_idle_ || threads_.size() == max_threads_) return true;
  try {
    threads_.push_back(StartThread([this] { Run(); }));
  } catch (const std::system_error&) {
    // The system cannot start another thread; the existing ones run the task.
  }
  return !threads_.empty();
}

void WorkQueue::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++num_idle_;
    changed_.wait(lock, [this] { return is_stopping_ || !pending_.empty(); });
    --num_idle_;
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
