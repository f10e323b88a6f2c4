// Which sequences start before those whose adapters have no memory.
#include "backends/llm_core/engine/running_adapters.h"

#include <utility>

namespace nereid::llm {
namespace {

// The most waiting sequences that are passed over in a step because their adapters have no memory,
// and because they are not ready.
constexpr int32_t kMaxSkipped = 256;
// The most sequences with an adapter that overtake the same waiting sequence, whose wait they may
// prolong. Those without an adapter do not prolong it.
constexpr int32_t kMaxOvertakers = 64;
// The waiting sequences whose adapters are made ready, one after the other, while others run.
constexpr int32_t kAdaptersAhead = 4;

}  // namespace

void RunningAdapters::BeginStep(const Waiting& waiting, bool others_run) {
  num_skipped_ = num_unready_ = 0;
  if (!prepare_ || !others_run) return;
  int32_t num_left = kAdaptersAhead;
  for (const auto& [rank, sequence] : waiting) {
    if (num_left-- == 0) return;
    if (Fits(*sequence->request) && !IsReady(*sequence, others_run)) return;
  }
}

RunningAdapters::Turn RunningAdapters::TurnOf(const Sequence& sequence, bool others_run) {
  const GenerationRequest& request = *sequence.request;
  if (!Fits(request)) {
    if (num_skipped_ == 0 &&
        std::exchange(overtaken_, sequence.rank.number) != sequence.rank.number) {
      num_overtakers_ = 0;
    }
    return num_skipped_++ < kMaxSkipped ? Turn::kWait : Turn::kWaitAll;
  }
  if (!IsReady(sequence, others_run)) {
    return ++num_unready_ > kMaxSkipped ? Turn::kWaitAll : Turn::kWait;
  }
  if (num_skipped_ > 0 && request.adapter != nullptr && num_overtakers_ >= kMaxOvertakers) {
    return ++num_skipped_ > kMaxSkipped ? Turn::kWaitAll : Turn::kWait;
  }
  return Turn::kStart;
}

}  // namespace nereid::llm
