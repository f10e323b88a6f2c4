// Sums of exponentials, and the most likely tokens.
#include "backends/llm_core/sampling/log_probs.h"

#include <algorithm>
#include <cmath>

#include "backends/llm_core/sampling/sampler.h"

namespace nereid::llm {

float LogSumExp(std::span<const float> logits, float max) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return max + static_cast<float>(std::log(sum));
}

float LogProb(std::span<const float> logits, int32_t token) {
  return logits[token] - LogSumExp(logits, logits[ArgMax(logits)]);
}

void FindTopTokens(std::span<const float> logits, size_t count, std::vector<SampledToken>& top) {
  // A heap whose first element is the least likely one; ids arrive in rising order.
  const auto is_likelier = [](const SampledToken& a, const SampledToken& b) {
    return a.log_prob > b.log_prob || (a.log_prob == b.log_prob && a.id < b.id);
  };
  top.clear();
  if (count == 0 || logits.empty()) return;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (top.size() == count) {
      if (!(logits[i] > top.front().log_prob)) continue;
      std::pop_heap(top.begin(), top.end(), is_likelier);
      top.pop_back();
    }
    top.push_back({static_cast<int32_t>(i), logits[i]});
    std::push_heap(top.begin(), top.end(), is_likelier);
  }
  std::sort_heap(top.begin(), top.end(), is_likelier);
  const float sum = LogSumExp(logits, top.front().log_prob);
  for (SampledToken& token : top) token.log_prob -= sum;
}

}  // namespace nereid::llm
