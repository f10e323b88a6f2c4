// The thread pool that loads models, with up to --model-load-thread-count threads. A thread starts
// with a load and ends after some idle seconds, so that a serving process does not keep them. [any
// thread]
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nereid::core {

class LoadThreadPool {
 public:
  explicit LoadThreadPool(unsigned num_threads);
  // Runs the queued tasks, then joins the threads.
  ~LoadThreadPool();

  void Run(std::function<void()> task);

 private:
  void RunWorker(size_t worker);

  const unsigned num_threads_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  struct Worker {
    std::thread thread;
    bool running = false;
  };
  std::vector<Worker> workers_;
  unsigned num_idle_ = 0;
  bool closing_ = false;
};

}  // namespace nereid::core
