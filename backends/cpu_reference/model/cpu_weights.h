// The weights of a decoder on the CPU: matrices point into the checkpoint's mapping where their
// rows lie together there, and are copied (transposed, gathered, integers repacked) where not;
// vectors become float. No matrix changes its precision. Immutable after load. [any thread]
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "backends/cpu_reference/ops/weight_type.h"
#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/model/architecture.h"
#include "nereid/status.h"

namespace nereid::cpu {

// A matrix with its optional bias; null data when the decoder has none.
struct Linear {
  WeightMatrix weights;
  std::vector<float> bias;
  // What an input row goes through first, where not empty: column c becomes
  // (in * input_scale)[column_order[c]].
  std::vector<int32_t> column_order;
  std::vector<float> input_scale;

  bool arranges_input() const { return !column_order.empty() || !input_scale.empty(); }
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

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<void, Free>> copies;
  size_t copied_bytes = 0;
};

// By `num_threads` threads, layer by layer. The checkpoint behind `model` must outlive the result:
// weights point into it. What has been copied from it, it lets go at once, so that nothing is held
// twice.
Result<CpuWeights> LoadCpuWeights(const llm::DecoderModel& model, const llm::Checkpoint& checkpoint,
                                  int32_t num_threads = 1);

}  // namespace nereid::cpu
