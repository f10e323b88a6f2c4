// Margins.
#include "llm_core/engine/planning_clock.h"

#include <algorithm>

namespace nereid::llm {
namespace {

using namespace std::chrono_literals;

// Requests that come less often than this have little to gain.
constexpr auto kRecently = 1s;
// What a thread's waking up may take, and steps differ by.
constexpr auto kLeastMargin = 500us;
constexpr int kMarginParts = 8;  // of a step

}  // namespace

PlanningClock::Clock::time_point PlanningClock::Latest(Clock::time_point began,
                                                       Clock::time_point now) const {
  if (arrived_ == Clock::time_point::min() || now - arrived_ > kRecently) return now;
  const Clock::duration margin =
      2 * planning_ + std::max<Clock::duration>(kLeastMargin, decode_step_ / kMarginParts);
  return began + decode_step_ - margin;
}

}  // namespace nereid::llm
