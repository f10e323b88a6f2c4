// Rotary frequencies with the context-extension scalings of Hugging Face configs. [load thread]
#pragma once

#include "backends/llm_core/model/config_reader.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::llm {

// inv_freq[i] = theta^(-2i / dim). An odd `dim` turns one dimension more.
RopeSpec PlainRope(int32_t dim, double theta);

// Of what config.json leaves open.
struct RopeDefaults {
  double theta = 10000.0;
  double partial_factor = 1.0;  // the share of a head that turns
  // Heads may turn in part without a scaling: else the config's share counts for scaled ropes
  // alone.
  bool turns_in_part = false;
  int32_t max_positions = 2048;
  // Of a family whose one scaling is longrope ("su" and "yarn" are older names of it): what the
  // model was trained on first, which its scaling does not say; 0: of another family.
  int32_t original_positions = 0;
};

// Reads rope_theta, partial_rotary_factor and rope_scaling / rope_parameters of `config` for heads
// of `head_dim`. Known kinds: default, linear, llama3, longrope, yarn, dynamic. Others fail by
// name.
RopeSpec ReadRope(ConfigReader& config, int32_t head_dim, const RopeDefaults& defaults = {});

// The tokens that a rope with such a scaling is said to reach: `positions` (that is
// max_position_embeddings), or `factor` times what it was trained on where that is more. Where
// layers have ropes of their own, that of the layers without a window counts.
int32_t ReadExtendedPositions(ConfigReader& config, int32_t positions);

}  // namespace nereid::llm
