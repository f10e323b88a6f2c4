// The thread that fails cancelled and timed-out requests of all models' queues while their
// instances are busy. Requests with neither a timeout nor a cancellation never involve it. One per
// server. [any thread]
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace nereid::core {

class QueueTimeoutThread {
 public:
  using Task = std::function<void()>;

  QueueTimeoutThread() = default;
  // Runs the tasks that are due, drops the others and joins the thread.
  ~QueueTimeoutThread();

  void Post(Task task) { PostAt(0, std::move(task)); }
  // Runs `task` on this thread when the steady clock reaches `deadline_ns`. Tasks must capture the
  // objects that they use by weak_ptr.
  void PostAt(uint64_t deadline_ns, Task task);

 private:
  void Run();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::multimap<uint64_t, Task> tasks_;  // keyed by deadline
  bool stopping_ = false;
  std::thread thread_;  // started by the first task
};

}  // namespace nereid::core
