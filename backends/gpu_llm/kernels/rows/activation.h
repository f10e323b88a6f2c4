// The middle of an MLP: out = act(gate + bias) * (up + bias), gate and up interleaved in groups of
// 8 columns as silu_gate.h has them, their biases too; or out = act(up + bias) without a gate.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::gpu {

struct ActivationParams {
  const __nv_bfloat16* in;    // [num_rows, inner_size], with a gate twice as wide
  const __nv_bfloat16* bias;  // of a row of `in`; null: none
  __nv_bfloat16* out;         // [num_rows, inner_size]
  int64_t num_rows;
  int inner_size;  // a multiple of 8
  llm::Activation kind;
  bool is_gated;
};

void Activate(const ActivationParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
