// A few threads for the calls that may take minutes, such as a model's load, so that no loop waits
// for them. Threads start when they are first needed. [any thread]
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nereid::http {

class BlockingPool {
 public:
  explicit BlockingPool(size_t max_threads) : max_threads_(max_threads) {}
  // Runs what is queued, then joins.
  ~BlockingPool();

  void Run(std::function<void()> work);

 private:
  void WorkUntilStopped();

  const size_t max_threads_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
  size_t num_idle_ = 0;
  bool is_stopping_ = false;
};

}  // namespace nereid::http
