// Follows the ids that begin and end the reasoning, and replaces what exceeds the budget.
#include "backends/llm_core/engine/reasoning_budget.h"

#include <algorithm>

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
    num_ended_ = NumEndedWith(token);
  }
  if (num_ended_ == limit_.end_ids.size()) state_ = State::kOver;
  return token;
}

size_t ReasoningBudget::NumEndedWith(int32_t token) const {
  const TokenIds& ids = limit_.end_ids;
  const auto at = [&ids](size_t index) { return ids.begin() + static_cast<ptrdiff_t>(index); };
  for (size_t num = num_ended_ + 1; num > 0; --num) {
    // The tokens before are the first num_ended_ ids, of which the last ones must be the first
    // ones.
    if (ids[num - 1] == token && std::equal(at(0), at(num - 1), at(num_ended_ + 1 - num))) {
      return num;
    }
  }
  return 0;
}

}  // namespace nereid::llm
