// The weights of a decoder on the CPU: matrices point into the checkpoint's mapping where their
// rows lie together there, and are copied (transposed, gathered) where not; vectors become float.
// Immutable after load. [any thread]
#pragma once

#include <memory>
#include <vector>

#include "cpu_reference/ops/weight_type.h"
#include "llm_core/model/architecture.h"
#include "nereid/status.h"

namespace nereid::cpu {

// A matrix with its optional bias; null data when the decoder has none.
struct Linear {
  WeightMatrix weights;
  std::vector<float> bias;

  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

struct Norm {
  std::vector<float> weight;  // weight_offset already added
  std::vector<float> bias;
};

struct Mlp {
  Linear gate, up, down;
};

struct LayerWeights {
  Norm input_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm, q_norm, k_norm;
  Linear q, k, v, attention_out;
  Mlp mlp;
  Linear router;
  std::vector<Mlp> experts;
};

struct CpuWeights {
  WeightMatrix token_embedding;
  WeightMatrix position_embedding;
  Norm final_norm;
  Linear lm_head;
  std::vector<LayerWeights> layers;

  std::vector<std::unique_ptr<uint8_t[]>> copies;
  size_t copied_bytes = 0;
};

// The checkpoint behind `model` must outlive the result.
Result<CpuWeights> LoadCpuWeights(const llm::DecoderModel& model);

}  // namespace nereid::cpu
