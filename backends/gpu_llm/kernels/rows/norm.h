// Norms of rows, and the residual addition that may end with one.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

// out[row] = in[row] / rms(in[row]) * weight.
struct RmsNormParams {
  const __nv_bfloat16* in;      // [.., hidden_size]
  const int32_t* rows;          // [num_rows]: rows of `in`; null: the first num_rows
  const __nv_bfloat16* weight;  // [hidden_size]
  __nv_bfloat16* out;           // [num_rows, hidden_size]
  int num_rows, hidden_size;    // hidden_size: a multiple of 8, at most 16,384
  float epsilon;
};

inline namespace NEREID_KERNEL_FORM {
void RmsNorm(const RmsNormParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// out[row] = (in[row] - mean) / deviation * weight + bias.
struct LayerNormParams {
  const __nv_bfloat16* in;      // [.., hidden_size]
  const int32_t* rows;          // [num_rows]: rows of `in`; null: the first num_rows
  const __nv_bfloat16* weight;  // [hidden_size]
  const __nv_bfloat16* bias;    // [hidden_size]; null: none
  __nv_bfloat16* out;           // [num_rows, hidden_size]
  int num_rows, hidden_size;    // hidden_size: a multiple of 8, at most 16,384
  float epsilon;
  // A second norm of the same rows, as blocks with a parallel residual have; null: none.
  const __nv_bfloat16* second_weight = nullptr;
  const __nv_bfloat16* second_bias = nullptr;
  __nv_bfloat16* second_out = nullptr;
};

inline namespace NEREID_KERNEL_FORM {
void LayerNorm(const LayerNormParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// residual[row] += in[row] + bias, or += rms_norm(in[row] + bias) * weight. Ends the attention or
// MLP part of a layer whose last matrix product has a bias or a norm. May also write the RMS norm
// of the new residual, the input of the product that follows.
struct ResidualAddParams {
  const __nv_bfloat16* in;           // [num_rows, hidden_size]
  const __nv_bfloat16* bias;         // [hidden_size]; null: none
  const __nv_bfloat16* norm_weight;  // [hidden_size]; null: no norm
  __nv_bfloat16* residual;           // [num_rows, hidden_size]
  int num_rows, hidden_size;         // hidden_size: a multiple of 8, at most 16,384
  float epsilon;
  const __nv_bfloat16* next_weight = nullptr;  // [hidden_size]; null: no norm of the residual
  __nv_bfloat16* normed = nullptr;             // [num_rows, hidden_size], with next_weight
};

inline namespace NEREID_KERNEL_FORM {
void ResidualAdd(const ResidualAddParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
