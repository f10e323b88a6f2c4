// The weights of a decoder in device memory: q, k and v as one matrix, gate and up as one whose
// rows alternate in groups of 8 (silu_gate.h); matrices as the checkpoint has them, bf16, fp8 or
// int4 (those of experts bf16), all else bf16, norm weights with their offset added. Immutable
// after load. [any thread]
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernels/products/weight_format.h"
#include "backends/gpu_llm/model/sharding.h"
#include "backends/llm_core/model/architecture.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct GpuMatrix : WeightMatrix {
  // Of the input, before the product (gather_columns.h): [depth]; null: as it is.
  const int32_t* column_order = nullptr;
  const float* input_scale = nullptr;

  bool gathers() const { return column_order != nullptr || input_scale != nullptr; }
};

struct GpuNorm {
  const __nv_bfloat16* weight = nullptr;  // [hidden_size]; null: there is no such norm
  const __nv_bfloat16* bias = nullptr;    // [hidden_size]; null: none
};

// The same matrix of every expert, one behind the other, bf16.
struct GpuExperts {
  GpuMatrix first;              // of expert 0
  int64_t stride_elements = 0;  // to the next one's
};

struct GpuLayer {
  GpuNorm input_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm;
  GpuMatrix qkv;                            // [q_size + 2 * kv_size, hidden_size]
  const __nv_bfloat16* qkv_bias = nullptr;  // [q_size + 2 * kv_size]; null: none
  const __nv_bfloat16* q_norm = nullptr;    // [head_dim]; null: none
  const __nv_bfloat16* k_norm = nullptr;
  GpuMatrix attention_out;                            // [hidden_size, q_size]
  const __nv_bfloat16* attention_out_bias = nullptr;  // [hidden_size]; null: none
  // Without experts. Without a gate `gate_up` is up alone, [intermediate_size, hidden_size].
  GpuMatrix gate_up;                            // [2 * intermediate_size, hidden_size]
  const __nv_bfloat16* gate_up_bias = nullptr;  // of its rows; null: none
  GpuMatrix down;                               // [hidden_size, intermediate_size]
  const __nv_bfloat16* down_bias = nullptr;     // [hidden_size]; null: none
  // With them.
  const __nv_bfloat16* router = nullptr;  // [num_experts, hidden_size]
  GpuExperts expert_gate_up, expert_down;
};

struct GpuWeights {
  const __nv_bfloat16* token_embedding = nullptr;     // [vocab_size, hidden_size]
  const __nv_bfloat16* position_embedding = nullptr;  // [max_positions, hidden_size]; null: none
  GpuNorm final_norm;
  // [PaddedVocabulary(vocab_size), hidden_size]: the last rows are zero; of several GPUs, this
  // one's share of the rows
  GpuMatrix lm_head;
  const __nv_bfloat16* lm_head_bias = nullptr;  // [vocab_size]; null: none
  std::vector<GpuLayer> layers;
  DeviceMemory memory;

  // Those that products of LinearRunner take.
  std::vector<const GpuMatrix*> matrices() const;
};

// Weights that are made up: matrices of the layers in this format.
struct DummyWeights {
  uint64_t seed = 1;
  WeightFormat format = WeightFormat::kBf16;
  bool quantizes_input = true;  // of fp8
};

// UNSUPPORTED names what of the decoder this backend does not run.
Status CheckGpuSupport(const llm::DecoderModel& model);

// Reads the checkpoint's bytes with several threads; or, with `dummy`, makes weights up on the
// device, and model.weights may be empty. To the current device. model.spec is this GPU's share of
// the decoder, `sharding` says which of the whole weights it is.
Result<GpuWeights> LoadGpuWeights(const llm::DecoderModel& model, const Sharding& sharding,
                                  const std::optional<DummyWeights>& dummy);

}  // namespace nereid::gpu
