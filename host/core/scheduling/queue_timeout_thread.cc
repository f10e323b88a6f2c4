#include "host/core/scheduling/queue_timeout_thread.h"

#include <utility>

#include "base/clock.h"
#include "base/thread.h"

namespace nereid::core {

QueueTimeoutThread::~QueueTimeoutThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void QueueTimeoutThread::PostAt(uint64_t deadline_ns, Task task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.emplace(deadline_ns, std::move(task));
    if (!thread_.joinable()) thread_ = StartThread([this] { Run(); });
  }
  changed_.notify_one();
}

void QueueTimeoutThread::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto next = tasks_.begin();
    if (next != tasks_.end() && next->first <= SteadyNowNs()) {
      Task task = std::move(next->second);
      tasks_.erase(next);
      lock.unlock();
      task();
      task = nullptr;  // objects that the task captured are destroyed outside the lock
      lock.lock();
    } else if (stopping_) {
      return;
    } else if (next == tasks_.end()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, SteadyDeadline(next->first));
    }
  }
}

}  // namespace nereid::core
