// The activation between the matrix products of an MLP, and that at the end of a residual block.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::gpu {

inline namespace NEREID_KERNEL_FORM {
// out = silu(gate) * up. Gate and up are interleaved in groups of 8 columns, as their matrix
// product writes them: columns [16 j, + 8) of a row are gate columns [8 j, + 8), and the next 8 are
// the up columns.
void SiluGate(const __nv_bfloat16* gate_up,  // [num_rows, 2 * inner_size]
              __nv_bfloat16* out,            // [num_rows, inner_size]
              int64_t num_rows, int inner_size, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// out = act(gate + bias) * (up + bias), or out = act(up + bias) without a gate. Gate and up, and
// their biases, are interleaved as for SiluGate().
struct ActivationParams {
  const __nv_bfloat16* in;    // [num_rows, inner_size], with a gate [num_rows, 2 * inner_size]
  const __nv_bfloat16* bias;  // a value for each column of `in`; null: none
  __nv_bfloat16* out;         // [num_rows, inner_size]
  int64_t num_rows;
  int inner_size;  // a multiple of 8
  llm::Activation kind;
  bool is_gated;
};

inline namespace NEREID_KERNEL_FORM {
void Activate(const ActivationParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// The end of a residual block of a Medusa head, which adds the SiLU of a product with bias to the
// block's input: out[head][row] = in[head][row] + silu(product[row][head] + bias[head]).
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
