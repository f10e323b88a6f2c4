// Margins of the planning deadline.
#include "backends/llm_core/engine/planning_timer.h"

#include <algorithm>

namespace nereid::llm {
namespace {

using namespace std::chrono_literals;

// With rarer arrivals, planning late gains little.
constexpr auto kRecently = 1s;
constexpr auto kLeastMargin = 500us;
constexpr int kMarginParts = 8;  // the margin is at least 1 / kMarginParts of a step
// If collecting took less than this, the result was ready before.
constexpr auto kAtOnce = 50us;

}  // namespace

void PlanningTimer::RecordStep(bool is_decode, Clock::duration took, Clock::duration waited) {
  if (waited <= kAtOnce) {
    decode_step_ /= 2;
  } else if (is_decode) {
    decode_step_ = took;
  }
}

PlanningTimer::Clock::time_point PlanningTimer::Deadline(Clock::time_point began,
                                                         Clock::time_point now) const {
  if (arrived_ == Clock::time_point::min() || now - arrived_ > kRecently) return now;
  return began + decode_step_ - Margin() - 2 * planning_;
}

PlanningTimer::Clock::duration PlanningTimer::Margin() const {
  return std::max<Clock::duration>(kLeastMargin, decode_step_ / kMarginParts);
}

}  // namespace nereid::llm
