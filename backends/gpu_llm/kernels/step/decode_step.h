// Fused decode step: all layers and the LM head of a step with few decoding sequences in one
// launch. The input is the residual, the output are the logits. The copying of weights continues
// from one matrix product to the next without a pause, also while the next input is still being
// computed.
// Gain when it was new: 250.6 instead of 230.7 tokens a second at batch 1 in bf16, 523 instead of
// 450 in int4.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/gpu_llm/kernels/gemm/weight_format.h"
#include "backends/gpu_llm/kernels/step/decode_step_sizes.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::gpu {

// The matrix products of a layer, in order; all have one weight format. With experts, gate and up
// and down are those of expert 0.
enum DecodeStepGemm { kStepQkv, kStepOut, kStepGateUp, kStepDown, kNumStepGemms };

struct DecodeStepLayer {
  // Layout: weight_format.h; gate and up interleaved as in activation.h.
  const void* weights[kNumStepGemms];
  const float* row_scales[kNumStepGemms];       // fp8
  const uint32_t* block_scales[kNumStepGemms];  // fp8: WeightMatrix::block_scales; null: none
  const __nv_bfloat16 *input_norm, *mlp_norm;
  const __nv_bfloat16* qkv_bias;  // null: none
  // Of StepLayers::kGeneral; null: none. The last two are norms of the products of attention and
  // MLP, before these are added to the residual.
  const __nv_bfloat16 *input_norm_bias, *mlp_norm_bias;
  const __nv_bfloat16 *out_bias, *gate_up_bias, *down_bias;
  const __nv_bfloat16 *post_attention_norm, *post_mlp_norm;
  const __nv_bfloat16 *q_norm, *k_norm;  // [head_dim]; null: none
  const float2* cos_sin;                 // [max_positions, rope_dim / 2]
  int rope_dim, window;                  // rope_dim 0: no rotation; window 0: no sliding window
  const __nv_bfloat16* router;           // [num_experts, hidden_size]; null: no experts
  int64_t gate_up_stride, down_stride;   // bytes from one expert's matrix to the next
};

// State that a launch leaves for the next one; initially all zero.
struct DecodeStepState {
  uint32_t set;          // of DecodeStepParams::exchange, for the next launch
  uint32_t num_ended;    // finished blocks of threads of the running launch
  uint32_t num_rows[2];  // rows written of each set and not cleared yet
  uint32_t timed_out;
};

struct DecodeStepParams {
  // Of the model.
  const DecodeStepLayer* layers;  // [num_layers], on the device
  int num_layers;
  WeightFormat format;
  int scales_per_block;  // int4
  CacheFormat cache_format;
  int hidden_size, inner_size, num_heads, num_kv_heads, head_dim;
  int unit_heads, item_units;  // StepUnitHeads(), StepItemUnits()
  float epsilon, attention_scale;
  // Of layers with experts; 0: there are none.
  int num_experts, experts_per_token, expert_inner_size;
  bool normalizes_experts;                 // the router weights of a row sum to 1
  const __nv_bfloat16 *head, *final_norm;  // head: [head_outputs, hidden_size]
  int head_outputs;
  StepLayers layer_kind;
  // Of StepLayers::kGeneral.
  const __nv_bfloat16* final_norm_bias;  // null: none
  llm::NormKind norm_kind;               // of all norms but those after attention and MLP
  llm::Activation activation;
  bool has_gate, parallel_residual, has_post_norms;
  float soft_cap;  // of scores; 0: none
  // Buffers of the step.
  const __nv_bfloat16* residual;  // [num_rows, hidden_size], from the embedding
  float* logits;                  // [num_rows, head_outputs]
  void* cache;                    // of `cache_format`
  int64_t cache_layer_bytes;
  float* partials;   // [num_items, item_tokens, num_heads, PartialFloats()]
  int item_tokens;   // StepPlanner::item_tokens()
  int32_t* tickets;  // [num_rows, num_heads]: finished items, zero before and after
  // Activations exchanged between blocks of threads: [2
  // sets][kDecodeStepRows][DecodeStepRowColumns]. A word (two values) is all ones until it
  // is written. Launches alternate between the two sets and clear the other one.
  __nv_bfloat16* exchange;
  DecodeStepState* state;
  // The step's plan.
  const int32_t *words, *positions, *cache_slots, *logit_rows;
  const DecodeItem* items;
  int num_items, num_rows;
  // [num_rows, 2 * hidden_size]: the input of q, k and v in the first layer, as an EAGLE-3 head has
  // it. Null: the normed residual.
  const __nv_bfloat16* input;
  // Slots of the ring through which weights, keys and values come. RunDecodeStep() sets it; callers
  // leave it.
  int num_slots;
};

inline DecodeStepSizes SizesOf(const DecodeStepParams& p) {
  return {p.format,      p.cache_format,      p.scales_per_block,  p.hidden_size,
          p.inner_size,  p.num_heads,         p.num_kv_heads,      p.head_dim,
          p.num_experts, p.experts_per_token, p.expert_inner_size, p.head_outputs,
          p.layer_kind};
}

// Columns that the gated values of a row have: with experts, those of each of its experts.
__host__ __device__ inline int DecodeStepInner(const DecodeStepParams& p) {
  const int of_experts = p.experts_per_token * p.expert_inner_size;
  return p.inner_size > of_experts ? p.inner_size : of_experts;
}
// The router's scores of a row, padded to whole tiles of outputs.
__host__ __device__ inline int DecodeStepScores(const DecodeStepParams& p) {
  return (p.num_experts + 15) / 16 * 16;
}
// Columns of a normed row in `exchange`.
__host__ __device__ inline int NormedColumns(const DecodeStepParams& p) {
  return p.layer_kind == StepLayers::kGeneral ? p.hidden_size : 0;
}
// Columns of a layer and row of `exchange`: two normed rows; q, k and v; attention; residual after
// attention; gated; residual after the MLP; scores in float; the products of attention and MLP
// before their norms.
__host__ __device__ inline int DecodeStepColumns(const DecodeStepParams& p) {
  return 2 * NormedColumns(p) + 2 * (p.num_heads + p.num_kv_heads) * p.head_dim +
         (p.has_post_norms ? 4 : 2) * p.hidden_size + DecodeStepInner(p) + 2 * DecodeStepScores(p);
}

// Columns of a row: of all layers, and the normed row that the LM head multiplies.
__host__ __device__ inline int DecodeStepRowColumns(const DecodeStepParams& p) {
  return p.num_layers * DecodeStepColumns(p) + NormedColumns(p);
}

inline namespace NEREID_KERNEL_FORM {
// Whether the device can run all blocks of threads of a kernel at once. kernel_registry.h says for
// which models there is one.
bool FitsDecodeStep(const DecodeStepSizes& sizes);
void RunDecodeStep(const DecodeStepParams& params, int num_processors, cudaStream_t stream);
// A launch without rows and layers. It returns an error if the device currently cannot start all
// blocks together. Reads the model's fields and `state` of `params`.
cudaError_t TryDecodeStep(const DecodeStepParams& params, int num_processors, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
