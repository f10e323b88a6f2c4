// What time it is for the engine, and how it waits for a time: the steady clock's. Tests make their
// own, in which steps take as long as they say.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace nereid::llm {

// [engine thread]
class EngineTime {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~EngineTime() = default;
  virtual TimePoint Now() { return std::chrono::steady_clock::now(); }
  // Lets go of `lock` until then, or until `is_over`, which is asked with the lock held; whoever
  // changes what it says notifies `changed`.
  virtual void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                         TimePoint until, const std::function<bool()>& is_over) {
    changed.wait_until(lock, until, is_over);
  }
};

}  // namespace nereid::llm
