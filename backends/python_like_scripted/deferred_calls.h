// Calls of a worker that may take long because other models, or this one, take part: loading and
// unloading a model, and asking whether one is ready. Each call runs on a thread of its own. The
// calls belong to the model and not to the session: a call may hold the last reference to a session
// or an instance, and neither of them can wait for the thread on which it is destroyed.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "nereid/status.h"

namespace nereid::python {

// The destructor waits for the calls that still run. [any thread]
class DeferredCalls {
 public:
  // Runs `work` on a new thread. `work` owns whatever it uses. UNAVAILABLE if the system has no
  // more threads.
  Status Run(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    std::erase_if(running_, [](const std::future<void>& each) {
      return each.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    running_.reserve(running_.size() + 1);
    // Destroys `work` on its own thread when it returns, not when the future is erased.
    auto run = [work = std::move(work)]() mutable {
      const AlternateSignalStack stack;
      std::exchange(work, nullptr)();
    };
    try {
      running_.push_back(std::async(std::launch::async, std::move(run)));
    } catch (const std::system_error& error) {
      return UnavailableError("no thread could be started: ", error.what());
    }
    return {};
  }

 private:
  std::mutex mutex_;  // guards running_
  std::vector<std::future<void>> running_;
};

}  // namespace nereid::python
