// Which sequences start before those whose adapters have no memory.
#include "backends/llm_core/engine/running_adapters.h"

#include <utility>

namespace nereid::llm {
namespace {

// While the first waiting sequences have no memory for their adapters, others are considered.
constexpr int32_t kMaxSkipped = 256;
// Of those, so many with an adapter may overtake the same sequence, since they may prolong its
// wait. Sequences without an adapter do not.
constexpr int32_t kMaxOvertakers = 64;
// The adapters of so many waiting sequences are made ready while others run.
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
        std::exchange(overtaken_, sequence.rank.number) != sequence.rank.number)
      num_overtakers_ = 0;
    return num_skipped_++ < kMaxSkipped ? Turn::kWait : Turn::kWaitAll;
  }
  if (!IsReady(sequence, others_run))
    return ++num_unready_ > kMaxSkipped ? Turn::kWaitAll : Turn::kWait;
  if (num_skipped_ > 0 && request.adapter != nullptr && num_overtakers_ >= kMaxOvertakers)
    return ++num_skipped_ > kMaxSkipped ? Turn::kWaitAll : Turn::kWait;
  return Turn::kStart;
}

}  // namespace nereid::llm
