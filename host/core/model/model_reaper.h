// The thread on which models end: their last reference may drop on one of their own instance
// threads, which cannot join itself. One a server. [any thread]
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace nereid {

class ModelReaper {
 public:
  ModelReaper() = default;
  // Runs what is left, then joins.
  ~ModelReaper();

  // Runs `end` soon; a slow one does not hold up the others.
  void Post(std::function<void()> end);
  // Waits until everything posted so far, and what that posted, has run.
  void WaitIdle();

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable idle_;
  size_t num_running_ = 0;
};

}  // namespace nereid
