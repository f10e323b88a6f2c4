// All layers of a step of few decoding sequences, and the LM head, in one launch: residual in,
// logits out. Weights flow without a pause from one product to the next, also while a product's
// input is still being made.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/products/weight_format.h"
#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu {

inline constexpr int kDecodeStepRows = 8;  // at most

// The products of a layer, in order; all of one format.
enum DecodeStepProduct { kStepQkv, kStepOut, kStepGateUp, kStepDown, kStepProducts };

struct DecodeStepLayer {
  const void* weights[kStepProducts];      // as weight_format.h has them; gate and up: silu_gate.h
  const float* row_scales[kStepProducts];  // fp8
  const __nv_bfloat16 *input_norm, *mlp_norm;
  const __nv_bfloat16* qkv_bias;         // null: none
  const __nv_bfloat16 *q_norm, *k_norm;  // [head_dim]; null: none
  const float2* cos_sin;                 // [max_positions, rope_dim / 2]
  int rope_dim, window;                  // window 0: all of the context
};

// What a launch leaves for the next one; all zero at first.
struct DecodeStepState {
  uint32_t set;          // of DecodeStepParams::exchange, that the next launch takes
  uint32_t num_ended;    // blocks of threads, while one runs
  uint32_t num_rows[2];  // that were written of each set and not cleared yet
  uint32_t has_given_up;
};

struct DecodeStepParams {
  // Of the model.
  const DecodeStepLayer* layers;  // [num_layers], on the device
  int num_layers;
  WeightFormat format;
  int scales_per_block;  // int4
  int hidden_size, inner_size, num_heads, num_kv_heads, head_dim;
  float epsilon, attention_scale;
  const __nv_bfloat16 *head, *final_norm;  // head: [head_outputs, hidden_size]
  int head_outputs;
  // What the step works in.
  const __nv_bfloat16* residual;  // [num_rows, hidden_size], of the embedding
  float* logits;                  // [num_rows, head_outputs]
  void* cache;                    // bf16
  int64_t cache_layer_bytes;
  float* partials;   // [num_items, num_heads, head_dim + 2]
  int32_t* tickets;  // [num_rows, num_heads], zero before and after
  // What blocks of threads hand to each other, every word (two values) of which says itself that it
  // is there: [2 sets][kDecodeStepRows][num_layers][DecodeStepColumns], all ones at first. Launches
  // take the two sets in turns and clear the other one's.
  __nv_bfloat16* exchange;
  DecodeStepState* state;
  // The step's plan.
  const int32_t *words, *positions, *cache_slots, *logit_rows;
  const DecodeItem* items;
  int num_items, num_rows;
};

// Of a layer and row of `exchange`: q, k and v; attention; residual; gated; residual.
__host__ __device__ inline int DecodeStepColumns(const DecodeStepParams& p) {
  return 2 * (p.num_heads + p.num_kv_heads) * p.head_dim + 2 * p.hidden_size + p.inner_size;
}

// Sizes that the kernel has no instance for, or a device that can not hold all of its blocks of
// threads at once: false.
bool CanRunDecodeStep(const DecodeStepParams& params, int num_processors);
void RunDecodeStep(const DecodeStepParams& params, int num_processors, cudaStream_t stream);
// A launch without rows and layers: its error where the device, as it is now, does not start all
// blocks together. Of `params`, what the model says, `head` and `arrivals` are read.
cudaError_t TryDecodeStep(const DecodeStepParams& params, int num_processors, cudaStream_t stream);

}  // namespace nereid::gpu
