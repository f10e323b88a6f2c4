// How a chain grows, whatever runs its head. [engine thread]
#include "backends/llm_core/speculation/draft_chains.h"

#include <cmath>
#include <numeric>

namespace nereid::llm {

bool DraftChain::Extend(const SampledToken& drawn, std::span<const SampledToken> likeliest,
                        float least_probability) {
  if (drawn.id == kNoToken) return false;
  bool is_likely = std::exp(drawn.log_prob) >= least_probability;
  if (num_siblings > 0) {
    const std::vector<float>& before = siblings->log_probs;
    const float path = std::accumulate(before.begin(), before.end(), drawn.log_prob);
    is_likely = is_likely && std::exp(path) >= least_path;
    std::vector<SampledToken>& tokens = siblings->tokens.emplace_back();
    if (is_likely) {
      siblings->log_probs.push_back(drawn.log_prob);
    } else {
      tokens.push_back(drawn);
    }
    for (const SampledToken& token : likeliest) {
      if (tokens.size() == static_cast<size_t>(num_siblings)) break;
      if (token.id != drawn.id) tokens.push_back(token);
    }
  }
  if (!is_likely) return false;
  drafts->push_back(drawn.id);
  return static_cast<int32_t>(drafts->size()) < max_drafts;
}

}  // namespace nereid::llm
