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

// `scores` [num_tokens, num_experts] are the router's outputs. Returns the tokens of each expert,
// in ascending order. Of experts with equal scores, those with the lower numbers are chosen.
std::vector<std::vector<RoutedToken>> RouteTokens(std::span<const float> scores,
                                                  const llm::MoeSpec& moe);

}  // namespace nereid::cpu
