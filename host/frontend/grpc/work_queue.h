// Thread pool that runs posted tasks in order of arrival. Threads start on demand. [any thread]
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
  // Up to `max_pending` tasks wait for one of up to `max_threads` threads.
  WorkQueue(int max_threads, size_t max_pending);
  // Drops pending tasks and waits for running ones.
  ~WorkQueue();

  // Returns false, without running `task`, if the queue is full or closed.
  [[nodiscard]] bool Post(std::function<void()> task);

  // Drops pending tasks and accepts no further ones.
  void Close();
  // Number of tasks that wait or run.
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
