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
  // Drops what is pending and waits for what runs.
  ~WorkQueue();

  // False when the queue is full: `task` will not run.
  [[nodiscard]] bool Post(std::function<void()> task);

  // Drops what is pending; nothing further is taken.
  void Close();
  // Tasks that wait or run.
  size_t num_tasks() const;

 private:
  void Run();

  const size_t max_pending_;
  mutable std::mutex mutex_;  // guards the three below
  std::deque<std::function<void()>> pending_;
  size_t num_running_ = 0;
  bool is_stopping_ = false;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
};

}  // namespace nereid
