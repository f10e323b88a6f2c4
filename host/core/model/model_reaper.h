// Threads on which models end: a model's last reference may drop on one of its own instance
// threads, which cannot join itself. One a server. [any thread]
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

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
