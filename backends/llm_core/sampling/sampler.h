/// \file
/// Token sampling on the CPU. It defines the sampling rules; the implementations of other executors
/// are tested against it. A Sampler keeps scratch memory: use one per thread. [executor thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/sampling/draft_acceptance.h"
#include "backends/llm_core/sampling/log_probs.h"
#include "backends/llm_core/sampling/sampling_params.h"
#include "backends/llm_core/sampling/token_rules.h"

namespace nereid::llm {

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
  /// Applies the rules and stores in `raw` the logits from which log probabilities are computed.
  /// Returns the most likely token, or kNoToken.
  int32_t Prepare(std::span<float> logits, const SamplingInput& input, std::span<const float>& raw);
  int32_t Draw(std::span<const float> logits, int32_t likeliest, const SamplingInput& input);
  /// The same where no rule leaves tokens out.
  static int32_t DrawFromAll(std::span<const float> logits, int32_t likeliest,
                             const SamplingParams& params, uint32_t position);
  /// Stores the tokens that pass top-k, top-p and min-p in candidates_, most likely first.
  void SelectCandidates(std::span<const float> logits, const SamplingParams& params, float top_p);

  TokenRules rules_;
  std::vector<float> raw_logits_;
  std::vector<float> scaled_;
  std::vector<Candidate> heap_;
  std::vector<Candidate> candidates_;
};

/// top_p after the decay by the output tokens so far, without the prompt; 1 if top_p is not set.
float DecayedTopP(const SamplingParams& params, std::span<const int32_t> output_ids);

/// The lowest index of the greatest value. Requires at least one value; 0 if the first is NaN.
int32_t ArgMax(std::span<const float> values);

}  // namespace nereid::llm
