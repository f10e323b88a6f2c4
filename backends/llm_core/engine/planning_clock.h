// When the next step should be planned while one runs: late, so that requests that arrive meanwhile
// are part of it, but early enough that the executor never waits for it. [engine thread]
#pragma once

#include <chrono>

namespace nereid::llm {

class PlanningClock {
 public:
  using Clock = std::chrono::steady_clock;

  // Requests came.
  void NoteArrival(Clock::time_point now) { arrived_ = now; }
  // What planning and submitting a step took.
  void NotePlanning(Clock::duration took) { planning_ = took; }
  // What a step took, and how long its result was waited for. One in which all sequences decoded a
  // token is what the next is expected to take. One that had ended before it was asked for was
  // shorter than that, or the host was busy: then less is expected, until a step is waited for.
  void NoteStep(bool is_decode, Clock::duration took, Clock::duration waited);
  // Nothing runs: what comes next may be of any length.
  void Forget() { decode_step_ = {}; }

  // Until when the step that follows the one that began at `began` may be left unplanned; what is
  // not later than `now`: it is to be planned at once. While nobody comes that is always so.
  Clock::time_point Latest(Clock::time_point began, Clock::time_point now) const;

 private:
  Clock::time_point arrived_ = Clock::time_point::min();
  Clock::duration planning_{};
  Clock::duration decode_step_{};
};

}  // namespace nereid::llm
