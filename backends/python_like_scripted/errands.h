// What a worker asks of the host and what may take its time, because other models, or this one,
// have a say in it: each such errand runs on a thread of its own. They belong to the model, not to
// who asked: an errand may be the last to hold a session or an instance, and neither can wait for a
// thread that it ends on.
#pragma once

#include <functional>
#include <future>
#include <mutex>
#include <vector>

#include "nereid/status.h"

namespace nereid::scripted {

// Waits for its errands at its end. [any thread]
class Errands {
 public:
  // UNAVAILABLE when the system has no more threads. The errand keeps alive what it uses.
  Status Run(std::function<void()> errand);

 private:
  std::mutex mutex_;  // guards running_
  std::vector<std::future<void>> running_;
};

}  // namespace nereid::scripted
