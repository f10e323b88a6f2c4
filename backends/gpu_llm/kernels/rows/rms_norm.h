// out[row] = in[row] / rms(in[row]) * weight.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace nereid::gpu {

struct RmsNormParams {
  const __nv_bfloat16* in;      // [.., hidden_size]
  const int32_t* rows;          // [num_rows]: which rows of `in`; null: the first num_rows
  const __nv_bfloat16* weight;  // [hidden_size]
  __nv_bfloat16* out;           // [num_rows, hidden_size]
  int num_rows, hidden_size;    // hidden_size: a multiple of 8, at most 16,384
  float epsilon;
};

void RmsNorm(const RmsNormParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
