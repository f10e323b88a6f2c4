// Rejection sampling.
#include "backends/llm_core/sampling/draft_acceptance.h"

#include "backends/llm_core/sampling/log_probs.h"
#include "backends/llm_core/sampling/sampler.h"

namespace nereid::llm {

// With p for the target and q for the drafter: the draft is accepted with the probability min(1, p
// / q), otherwise a token is drawn in proportion to max(0, p - q). Source: Leviathan et al., "Fast
// inference from transformers via speculative decoding", 2023.
int32_t AcceptOrRedraw(std::span<const Candidate> candidates, const DrawnDraft& draft,
                       uint64_t seed, uint32_t position) {
  const float max = candidates.front().logit;
  double total = 0.0;
  double of_draft = 0.0;
  for (const Candidate& candidate : candidates) {
    const double weight = std::exp(candidate.logit - max);
    total += weight;
    if (candidate.id == draft.id) of_draft = weight;
  }
  const float draft_sum = LogSumExp(draft.logits, draft.logits[ArgMax(draft.logits)]);
  const auto drafted = [&](int32_t id) { return double{std::exp(draft.logits[id] - draft_sum)}; };
  const double part = draft.threshold > 0.0f ? draft.threshold : DraftUniform(seed, position);
  if (of_draft / total > part * drafted(draft.id)) return draft.id;
  float best = kBanned;
  int32_t drawn = kNoToken;
  for (const Candidate& candidate : candidates) {
    const double excess = std::exp(candidate.logit - max) / total - drafted(candidate.id);
    if (!(excess > 0.0)) continue;
    const float value =
        static_cast<float>(std::log(excess)) + GumbelNoise(seed, position, candidate.id);
    if (value > best || (value == best && candidate.id < drawn)) {
      best = value;
      drawn = candidate.id;
    }
  }
  return drawn;
}

}  // namespace nereid::llm
