// Margins.
#include "backends/llm_core/engine/planning_clock.h"

#include <algorithm>

namespace nereid::llm {
namespace {

using namespace std::chrono_literals;

// Requests that come less often than this have little to gain.
constexpr auto kRecently = 1s;
// What a thread's waking up may take, and steps differ by.
constexpr auto kLeastMargin = 500us;
constexpr int kMarginParts = 8;  // of a step
// A result that takes no longer to get was there.
constexpr auto kAtOnce = 50us;

}  // namespace

void PlanningClock::NoteStep(bool is_decode, Clock::duration took, Clock::duration waited) {
  if (waited <= kAtOnce) {
    decode_step_ /= 2;
  } else if (is_decode) {
    decode_step_ = took;
  }
}

PlanningClock::Clock::time_point PlanningClock::Latest(Clock::time_point began,
                                                       Clock::time_point now) const {
  if (arrived_ == Clock::time_point::min() || now - arrived_ > kRecently) return now;
  const Clock::duration margin =
      2 * planning_ + std::max<Clock::duration>(kLeastMargin, decode_step_ / kMarginParts);
  return began + decode_step_ - margin;
}

}  // namespace nereid::llm
