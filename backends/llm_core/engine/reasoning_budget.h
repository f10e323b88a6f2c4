// Bounds the reasoning of one sequence: counts its tokens, and once they are as many as the request
// allows, replaces the sampled tokens by those that end the reasoning. [engine thread]
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/llm_core/sampling/sampling_params.h"

namespace nereid::llm {

struct ReasoningLimit {
  int32_t max_tokens = 0;  // of the reasoning, without the ids below
  // The ids with which an output begins that reasons. Empty: the prompt has begun the reasoning.
  TokenIds begin_ids;
  TokenIds end_ids;  // what ends the reasoning; at least one
};

class ReasoningBudget {
 public:
  // Borrows `limit`.
  explicit ReasoningBudget(const ReasoningLimit& limit);

  // Called for each token of the output, in order. Returns the token that the output gets in place
  // of the sampled one, which is mostly the same.
  int32_t Apply(int32_t sampled);
  // The reasoning has ended, or the output has none: Apply replaces nothing any more.
  bool is_over() const { return state_ == State::kOver; }
  // Whether one of the next `num_tokens` tokens may be replaced.
  bool IsDueWithin(int64_t num_tokens) const { return !is_over() && num_left_ < num_tokens; }

 private:
  enum class State { kBeginning, kReasoning, kEnding, kOver };

  // How many of the first end_ids the output ends with once it has `token`, too.
  size_t NumEndedWith(int32_t token) const;

  const ReasoningLimit& limit_;
  State state_;
  int64_t num_left_;      // tokens before the first that may be replaced
  size_t num_begun_ = 0;  // of begin_ids
  size_t num_ended_ = 0;  // of end_ids, which the output ends with
};

}  // namespace nereid::llm
