// Rotates queries and keys by their positions and writes keys and values to the paged cache. Biases
// and per-head norms, if the model has them, are applied before.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

struct RopeWriteParams {
  // [num_rows, (num_heads + 2 * num_kv_heads) * head_dim]; queries are rotated in place.
  __nv_bfloat16* qkv;
  const int32_t* positions;     // [num_rows]
  const int32_t* cache_slots;   // [num_rows]: block * kBlockTokens + token; negative: not written
  const float2* cos_sin;        // [max_positions, rope_dim / 2]
  const __nv_bfloat16* bias;    // [(num_heads + 2 * num_kv_heads) * head_dim]; null: none
  const __nv_bfloat16* q_norm;  // [head_dim]; null: none
  const __nv_bfloat16* k_norm;  // [head_dim]
  void* cache;                  // this layer's blocks
  int num_rows, num_heads, num_kv_heads, head_dim, rope_dim;
  float epsilon;  // of q_norm and k_norm
  CacheFormat format;
  bool rows_are_independent;  // few adjacent rows belong to one sequence
};

inline namespace NEREID_KERNEL_FORM {
void RopeWrite(const RopeWriteParams& params, cudaStream_t stream);

// Fills cos_sin for positions [0, max_positions): angle = position * inv_freq, values times
// `magnitude`.
void FillRopeTable(const float* inv_freq, int half_dim, int max_positions, float magnitude,
                   float2* cos_sin, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
