// The activation between the matrix products of an MLP.
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

}  // namespace nereid::gpu
