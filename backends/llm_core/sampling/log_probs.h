/// \file
/// Log probabilities of tokens in the distribution of logits. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nereid::llm {

/// SampledToken::id if the rules ban every token.
inline constexpr int32_t kNoToken = -1;

struct SampledToken {
  int32_t id = 0;  ///< or kNoToken
  /// Log probability in the model's own distribution, before any rule. 0 if not requested.
  float log_prob = 0.0f;
};

/// log(sum(exp(logits))), with the sum in double precision. `max`: the greatest of the logits.
float LogSumExp(std::span<const float> logits, float max);

/// log_softmax(logits)[token].
float LogProb(std::span<const float> logits, int32_t token);

/// Stores in `top` the `count` most likely tokens, most likely first, ties by id, with their log
/// probabilities in the distribution of `logits`. Fewer if there are fewer logits.
void FindTopTokens(std::span<const float> logits, size_t count, std::vector<SampledToken>& top);

}  // namespace nereid::llm
