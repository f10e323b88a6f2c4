// The threads on which models are loaded: as many loads at once as --model-load-thread-count.
// Threads start with the first load and end when they have been idle for a while, so that a serving
// process does not carry them. [any thread]
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace nereid {

class LoadPool {
 public:
  explicit LoadPool(unsigned num_threads);
  // Runs what is queued, then joins.
  ~LoadPool();

  void Run(std::function<void()> task);

 private:
  void Work(size_t slot);

  const unsigned num_threads_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  struct Slot {
    std::thread thread;
    bool running = false;
  };
  std::vector<Slot> slots_;
  unsigned num_idle_ = 0;
  bool closing_ = false;
};

}  // namespace nereid
