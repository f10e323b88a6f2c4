// See reasoning_budget.h.
#include "backends/llm_core/engine/reasoning_budget.h"

namespace nereid::llm {

ReasoningBudget::ReasoningBudget(const ReasoningLimit& limit)
    : limit_(limit),
      state_(limit.begin_ids.empty() ? State::kReasoning : State::kBeginning),
      num_left_(int64_t{limit.max_tokens} + static_cast<int64_t>(limit.begin_ids.size())) {}

int32_t ReasoningBudget::Apply(int32_t sampled) {
  if (state_ == State::kOver) return sampled;
  if (state_ == State::kBeginning) {
    --num_left_;
    if (sampled != limit_.begin_ids[num_begun_]) {
      state_ = State::kOver;
    } else if (++num_begun_ == limit_.begin_ids.size()) {
      state_ = State::kReasoning;
    }
    return sampled;
  }
  if (num_left_ == 0) state_ = State::kEnding;
  int32_t token = sampled;
  if (state_ == State::kEnding) {
    token = limit_.end_ids[num_ended_++];
  } else {
    --num_left_;
    if (token != limit_.end_ids[num_ended_]) num_ended_ = 0;
    if (token == limit_.end_ids[num_ended_]) ++num_ended_;
  }
  if (num_ended_ == limit_.end_ids.size()) state_ = State::kOver;
  return token;
}

}  // namespace nereid::llm
