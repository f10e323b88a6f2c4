// The end of a residual block of a Medusa head: the SiLU of a product with bias is added to the
// block's input.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

// For each head: out[head][row] = in[head][row] + silu(product[row][head] + bias[head]).
struct SiluResidualParams {
  const __nv_bfloat16* in;        // [num_rows, size], of head h at h * in_stride
  const __nv_bfloat16* product;   // [num_rows, num_heads * size]
  const __nv_bfloat16* bias;      // [num_heads * size]; null: none
  __nv_bfloat16* out;             // [num_rows, size], of head h at h * out_stride; may be `in`
  int num_rows, num_heads, size;  // size: a multiple of 8
  int in_stride, out_stride;      // 0 for `in`: all heads have the same
};

inline namespace NEREID_KERNEL_FORM {
void SiluResidual(const SiluResidualParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
