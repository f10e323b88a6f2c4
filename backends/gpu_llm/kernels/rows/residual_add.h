// residual[row] += in[row] + bias, or += rms_norm(in[row] + bias) * weight: the end of half a layer
// whose product has a bias or a norm of its own.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace nereid::gpu {

struct ResidualAddParams {
  const __nv_bfloat16* in;           // [num_rows, hidden_size]
  const __nv_bfloat16* bias;         // [hidden_size]; null: none
  const __nv_bfloat16* norm_weight;  // [hidden_size]; null: not normed
  __nv_bfloat16* residual;           // [num_rows, hidden_size]
  int num_rows, hidden_size;         // hidden_size: a multiple of 8, at most 16,384
  float epsilon;
};

void ResidualAdd(const ResidualAddParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
