// The engine's time source, and the times at which it plans the next step and asks for the result
// of one. [engine thread]
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace nereid::llm {

// The engine's time source: the steady clock. Tests substitute a clock under which steps take a
// chosen time. [engine thread]
class EngineClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~EngineClock() = default;
  virtual TimePoint Now() { return std::chrono::steady_clock::now(); }
  // Releases `lock` and waits until `until` or until `is_over` returns true. `is_over` is called
  // with the lock held. Whoever changes its result must notify `changed`.
  virtual void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                         TimePoint until, const std::function<bool()>& is_over) {
    changed.wait_until(lock, until, is_over);
  }
};

// Decides when to plan the next step while one runs: late, so that newly arrived requests can join
// it, but early enough that the executor never waits.
class PlanningTimer {
 public:
  using Clock = std::chrono::steady_clock;

  // Records that requests arrived.
  void RecordArrival(Clock::time_point now) { arrived_ = now; }
  // Records how long planning and submitting a step took.
  void RecordPlanning(Clock::duration took) { planning_ = took; }
  // Records how long a step took and how long the engine waited for its result. A step of decodes
  // alone predicts the duration of the next one. A result that was ready before Collect means a
  // shorter step or a busy host: the prediction is halved until the engine waits for a step again.
  void RecordStep(bool is_decode, Clock::duration took, Clock::duration waited);
  // Forgets the prediction when no sequence is left, because the next step may have any length.
  void Reset() { decode_step_ = {}; }

  // The latest time to plan the step after the one that began at `began`. A result not later than
  // `now` means that it is due at once, which is always so without recent arrivals.
  Clock::time_point Deadline(Clock::time_point began, Clock::time_point now) const;
  // The time from which to ask for the result of the step that began at `began`: shortly before the
  // step can end. With short or unknown steps, not later than `began`.
  Clock::time_point CollectTime(Clock::time_point began) const {
    return began + decode_step_ - Margin();
  }

 private:
  // Covers the time to wake a thread and the variation between steps.
  Clock::duration Margin() const;

  Clock::time_point arrived_ = Clock::time_point::min();
  Clock::duration planning_{};
  Clock::duration decode_step_{};
};

}  // namespace nereid::llm
