// Threads that run what others hand them, in order of arrival. They start when there is something
// for them to do. [any thread]
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
  // At most `max_pending` tasks wait for one of at most `max_threads` threads.
  WorkQueue(int max_threads, size_t max_pending);
  // Drops what is pending and waits for what runs.
  ~WorkQueue();

  // False when the queue is full: `task` will not run.
  [[nodiscard]] bool Post(std::function<void()> task);

  // Drops what is pending; nothing further is taken.
  void Close();
  // Tasks that wait or run.
  size_t num_tasks() const;

 private:
  bool HasThread();
  void Run();

  const size_t max_threads_;
  const size_t max_pending_;
  mutable std::mutex mutex_;  // guards all below
  std::deque<std::function<void()>> pending_;
  size_t num_running_ = 0;
  size_t num_idle_ = 0;
  bool is_stopping_ = false;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
};

}  // namespace nereid
