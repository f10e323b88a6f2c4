// Polls the model repository at an interval. A poll takes as long as the loads that it starts, so
// each poll has its own thread, and one that does not return delays neither the next one nor the
// shutdown. [main thread]
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>

#include "nereid/server.h"

namespace nereid {

class RepositoryPoller {
 public:
  // Waits for `interval` before the first poll. With an interval of 0 it never polls. `server`
  // outlives the object.
  RepositoryPoller(const Server& server, std::chrono::seconds interval);
  // Calls Stop. IsIdle must be true.
  ~RepositoryPoller();

  // Starts no further polls.
  void Stop();
  // True if no poll is in progress.
  bool IsIdle() const;

 private:
  void Run();
  void PollOnce();

  const Server& server_;
  const std::chrono::seconds interval_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool is_stopping_ = false;
  size_t num_polls_ = 0;  // in progress
  std::thread thread_;
};

}  // namespace nereid
