// Weights are the softmax of the router's scores, over the chosen experts or over all of them.
#include "backends/cpu_reference/model/expert_routing.h"

#include <algorithm>
#include <cmath>

namespace nereid::cpu {

std::vector<std::vector<RoutedToken>> RouteTokens(std::span<const float> scores,
                                                  const llm::MoeSpec& moe) {
  std::vector<std::vector<RoutedToken>> tokens_of(moe.num_experts);
  std::vector<int32_t> order(moe.num_experts);
  const int64_t num_tokens = std::ssize(scores) / moe.num_experts;
  for (int64_t token = 0; token < num_tokens; ++token) {
    const float* score = scores.data() + token * moe.num_experts;
    for (int32_t expert = 0; expert < moe.num_experts; ++expert) order[expert] = expert;
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return score[a] > score[b]; });
    const int32_t counted = moe.normalize_top_k ? moe.experts_per_token : moe.num_experts;
    float sum = 0.0f;
    for (int32_t i = 0; i < counted; ++i) sum += std::exp(score[order[i]] - score[order[0]]);
    for (int32_t i = 0; i < moe.experts_per_token; ++i) {
      tokens_of[order[i]].push_back({token, std::exp(score[order[i]] - score[order[0]]) / sum});
    }
  }
  return tokens_of;
}

}  // namespace nereid::cpu
