/// \file
/// The rules of a request on single tokens: biases, penalties and bans. They change the logits
/// before a token is chosen. [executor thread]
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "backends/llm_core/sampling/sampling_params.h"

namespace nereid::llm {

/// The sequence whose next token is sampled. Everything is borrowed for the call.
struct SamplingInput {
  const SamplingParams* params = nullptr;
  std::span<const int32_t> token_ids;  ///< prompt and output so far
  int32_t num_prompt = 0;
  /// Ids that may not be sampled in this step: the end ids before min_tokens.
  std::span<const int32_t> banned_ids;
  /// The tokens that the request's grammar allows, as bits: id % 32 of word id / 32. No other token
  /// may be sampled. Empty: all.
  std::span<const uint32_t> token_mask = {};
};

/// The tokens that penalties count: without the prompt's first prompt_ignore_length.
inline std::span<const int32_t> CountedTokens(const SamplingInput& input) {
  const auto ignored = static_cast<size_t>(input.params->prompt_ignore_length);
  return input.token_ids.subspan(std::min(ignored, input.token_ids.size()));
}

/// The logit of a token that may not be sampled.
inline constexpr float kBanned = -std::numeric_limits<float>::infinity();

/// Keeps scratch memory: use one per thread.
class TokenRules {
 public:
  /// Applies the rules in the order that SamplingParams defines. Banned tokens get kBanned.
  void Apply(std::span<float> logits, const SamplingInput& input);

 private:
  void ApplyPenalties(std::span<float> logits, const SamplingInput& input);
  /// Bans all tokens but these; none if there are no ids.
  void BanOtherThan(const TokenIds& allowed_ids, std::span<float> logits);

  std::vector<int32_t> counts_;  ///< [vocab_size], all zero between calls
  std::vector<int32_t> banned_;
  std::vector<float> allowed_;
};

/// Stores in `banned` the ids excluded by bad words, repeated n-grams and banned_ids, in place of
/// its content. An id may occur more than once.
void FindBannedIds(const SamplingInput& input, int32_t vocab_size, std::vector<int32_t>& banned);

}  // namespace nereid::llm
