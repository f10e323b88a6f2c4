/// \file
/// Token sampling on the CPU. It defines the sampling rules; the implementations of other executors
/// are tested against it. A Sampler keeps scratch memory: use one per thread. [executor thread]
#pragma once

#include <algorithm>
#include <cstdint>
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

/// SampledToken::id if the rules ban every token.
inline constexpr int32_t kNoToken = -1;

struct SampledToken {
  int32_t id = 0;  ///< or kNoToken
  /// Log probability in the model's own distribution, before any rule. 0 if not requested.
  float log_prob = 0.0f;
};

/// A draft token with the distribution from which it was drawn.
struct DrawnDraft {
  int32_t id = 0;
  std::span<const float> logits;  ///< [vocab_size]; the distribution is their softmax
  /// Accepted if the target's probability exceeds this part of the drafter's. 0: a random part,
  /// which keeps the target's distribution; any other value changes it.
  float threshold = 0.0f;
};

/// Samples tokens by the rules of SamplingParams. Not thread-safe.
class Sampler {
 public:
  /// Samples the next token by the Gumbel-max method, or takes the most likely one if the
  /// parameters are greedy. The draw depends on seed, position and logits only. `logits`
  /// [vocab_size] of the last token; the rules change them. With equal logits, the lowest id wins.
  /// Returns kNoToken if the rules ban every token.
  SampledToken Sample(std::span<float> logits, const SamplingInput& input);
  /// The same by rejection sampling: returns the draft if it is accepted, and otherwise a token
  /// drawn from what the target's distribution has in excess of the drafter's. Over many seeds, the
  /// tokens have the distribution of Sample. If the parameters are greedy, it returns what Sample
  /// returns.
  SampledToken Verify(std::span<float> logits, const SamplingInput& input, const DrawnDraft& draft);
  /// Returns the `count` most likely tokens for beam search, most likely first, ties by id. Applies
  /// all rules except the draw. log_prob belongs to the distribution after these rules and the
  /// temperature. `logits` [vocab_size] is changed.
  std::vector<SampledToken> Candidates(std::span<float> logits, const SamplingInput& input,
                                       int32_t count);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };

  /// Applies the rules and stores in `raw` the logits from which log probabilities are computed.
  /// Returns the most likely token, or kNoToken.
  int32_t Prepare(std::span<float> logits, const SamplingInput& input, std::span<const float>& raw);
  void ApplyRules(std::span<float> logits, const SamplingInput& input);
  /// Bans all tokens but these; none if there are no ids.
  void BanOtherThan(const TokenIds& allowed_ids, std::span<float> logits);
  /// Bans the tokens whose bit is not set; none if the mask is empty.
  static void BanOutsideOf(std::span<const uint32_t> token_mask, std::span<float> logits);
  void ApplyPenalties(std::span<float> logits, const SamplingInput& input);
  int32_t Draw(std::span<const float> logits, int32_t likeliest, const SamplingInput& input);
  int32_t AcceptOrRedraw(std::span<const float> logits, int32_t likeliest,
                         const SamplingInput& input, const DrawnDraft& draft);
  /// Stores the tokens that pass top-k, top-p and min-p in candidates_, most likely first.
  void SelectCandidates(std::span<const float> logits, const SamplingParams& params, float top_p);

  std::vector<float> raw_logits_;
  std::vector<float> scaled_;
  std::vector<int32_t> counts_;  ///< [vocab_size], all zero between calls
  std::vector<int32_t> banned_;
  std::vector<float> allowed_;
  std::vector<Candidate> heap_;
  std::vector<Candidate> candidates_;
};

/// Stores in `banned` the ids excluded by bad words, repeated n-grams and banned_ids, in place of
/// its content. An id may occur more than once.
void FindBannedIds(const SamplingInput& input, int32_t vocab_size, std::vector<int32_t>& banned);

/// top_p after the decay by the output tokens so far, without the prompt; 1 if top_p is not set.
float DecayedTopP(const SamplingParams& params, std::span<const int32_t> output_ids);

/// log_softmax(logits)[token], with the sum in double precision.
float LogProb(std::span<const float> logits, int32_t token);

/// Stores in `top` the `count` most likely tokens, most likely first, ties by id, with their log
/// probabilities in the distribution of `logits`. Fewer if there are fewer logits.
void FindTopTokens(std::span<const float> logits, size_t count, std::vector<SampledToken>& top);

/// The lowest index of the greatest value. Requires at least one value; 0 if the first is NaN.
int32_t ArgMax(std::span<const float> values);

}  // namespace nereid::llm
