// The weights of a decoder on the CPU. A matrix points into the checkpoint's mapping if its rows
// are contiguous there. Otherwise it is copied: transposed, gathered, or repacked from integers.
// Vectors are converted to float; matrices keep their precision. Immutable after load. [any thread]
#pragma once

#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu_reference/ops/weight_format.h"
#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/model/architecture.h"
#include "nereid/status.h"

namespace nereid::cpu {

// A matrix with an optional bias. Null data if the decoder does not have it.
struct Linear {
  WeightMatrix weights;
  std::vector<float> bias;
  // Transformation of an input row, if not empty: column c becomes (in *
  // input_scale)[column_order[c]].
  std::vector<int32_t> column_order;
  std::vector<float> input_scale;

  bool transforms_input() const { return !column_order.empty() || !input_scale.empty(); }
  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

struct NormWeights {
  std::vector<float> weight;  // weight_offset already added
  std::vector<float> bias;
};

struct MlpWeights {
  Linear gate, up, down;
};

struct LayerWeights {
  NormWeights input_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm, q_norm, k_norm;
  NormWeights feature_norm;  // of an EAGLE-3 head
  Linear q, k, v, attention_out;
  MlpWeights mlp;
  Linear router;
  Linear residual_block, lm_head;  // of a Medusa head
  std::vector<MlpWeights> experts;
};

struct CpuWeights {
  WeightMatrix token_embedding;
  WeightMatrix position_embedding;
  NormWeights final_norm;
  Linear lm_head;
  Linear feature_projection;  // of an EAGLE-3 head
  std::vector<LayerWeights> layers;

  struct FreeDeleter {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<void, FreeDeleter>> allocations;
  size_t allocated_bytes = 0;

  // Bytes of weights that one decode step reads. Experts are not counted.
  int64_t bytes_per_step() const;
};

// A model of those weights of `model` outside of its layers that are of these kinds: what a draft
// head takes from the model that it drafts for. Its embeddings are not tied.
llm::DecoderModel WithoutLayers(const llm::DecoderModel& model,
                                std::span<const llm::WeightKind> kinds);

// Loads layer by layer on `num_threads` threads. The checkpoint behind `model` must outlive the
// result, because weights point into it. Releases the checkpoint's pages of copied tensors at once,
// so that no weight is in memory twice.
Result<CpuWeights> LoadCpuWeights(const llm::DecoderModel& model, const llm::Checkpoint& checkpoint,
                                  int32_t num_threads = 1);

}  // namespace nereid::cpu
