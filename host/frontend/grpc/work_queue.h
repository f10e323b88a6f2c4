// Threads that run what others hand them, in order of arrival. [any thread]
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nereid {

class WorkQueue {
 public:
  // At most `max_pending` tasks wait for one of `num_threads` threads.
  WorkQueue(int num_threads, size_t max_pending);
  // Runs what is pending, then joins.
  ~WorkQueue();

  // False when the queue is full: `task` will not run.
  [[nodiscard]] bool Post(std::function<void()> task);

 private:
  void Run();

  const size_t max_pending_;
  std::mutex mutex_;  // guards the two below
  std::deque<std::function<void()>> pending_;
  bool is_stopping_ = false;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
};

}  // namespace nereid
