// Decides which experts of a layer compute which tokens. Pure function. [any thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::cpu {

struct RoutedToken {
  int64_t token;  // its row
  float weight;   // of the expert's output
};

// `scores` [num_tokens, num_experts] of the router. Returns the tokens of each expert, in order. Of
// experts with equal scores, the first counts.
std::vector<std::vector<RoutedToken>> RouteTokens(std::span<const float> scores,
                                                  const llm::MoeSpec& moe);

}  // namespace nereid::cpu
