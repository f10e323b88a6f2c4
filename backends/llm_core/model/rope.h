// Rotary frequencies with the context-extension scalings of Hugging Face configs. [load thread]
#pragma once

#include "backends/llm_core/model/config_reader.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::llm {

// inv_freq[i] = theta^(-2i / dim). For an odd `dim`, dim + 1 elements are rotated.
RopeSpec PlainRope(int32_t dim, double theta);

// Values for keys that config.json leaves out.
struct RopeDefaults {
  double theta = 10000.0;
  double partial_factor = 1.0;  // the fraction of a head that is rotated
  // True: partial_rotary_factor of the config always applies. False: it applies to scaled ropes
  // only.
  bool allows_partial_rotary = false;
  int32_t max_positions = 2048;
  // For a family whose only scaling is longrope, also named "su" and "yarn": the context of the
  // original training, which its scaling does not contain. 0 for other families.
  int32_t original_positions = 0;
};

// Reads rope_theta, partial_rotary_factor and rope_scaling or rope_parameters for heads of
// `head_dim`. Known types: default, linear, llama3, longrope, yarn, dynamic. Others fail by name.
RopeSpec ReadRope(ConfigReader& config, int32_t head_dim, const RopeDefaults& defaults = {});

// The number of tokens that the scaling reaches: `positions` (max_position_embeddings), or `factor`
// times the trained context if that is more. If layers have different ropes, the one for full
// attention counts.
int32_t ReadExtendedPositions(ConfigReader& config, int32_t positions);

}  // namespace nereid::llm
