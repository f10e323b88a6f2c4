/// \file
/// Accepts or replaces a draft token by rejection sampling, so that the tokens have the
/// distribution of the target model. [executor thread]
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "backends/llm_core/sampling/philox.h"

namespace nereid::llm {

/// A draft token with the distribution from which it was drawn.
struct DrawnDraft {
  int32_t id = 0;
  std::span<const float> logits;  ///< [vocab_size]; the distribution is their softmax
  /// Accepted if the target's probability exceeds this part of the drafter's. 0: a random part,
  /// which keeps the target's distribution; any other value changes it.
  float threshold = 0.0f;
};

/// A token that may be drawn, with its logit after rules and temperature.
struct Candidate {
  float logit;
  int32_t id;
};

/// The noise of a token by which the greatest sum of logit and noise is a draw: from -2.9 to 16.7.
inline float GumbelNoiseOf(float uniform) {
  return -std::log(-std::log(uniform));
}
inline float GumbelNoise(uint64_t seed, uint32_t position, int32_t token) {
  return GumbelNoiseOf(TokenUniform(seed, position, static_cast<uint32_t>(token)));
}

/// Returns the draft, or the token drawn in its place. `candidates`: of the target's distribution,
/// at least one, most likely first. kNoToken if the drafter's distribution covers it all.
int32_t AcceptOrRedraw(std::span<const Candidate> candidates, const DrawnDraft& draft,
                       uint64_t seed, uint32_t position);

}  // namespace nereid::llm
