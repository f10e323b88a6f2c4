// The input of an EAGLE-3 head's layer: the normed embedding of each row's token beside its normed
// hidden state.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

struct HeadInputParams {
  const int32_t* ids;          // [num_rows]; negative: the token last drawn for slot -1 - id
  const int32_t* last_tokens;  // by slot
  const int32_t* target_ids;   // the target's id of each id in last_tokens; null: it is the same
  const __nv_bfloat16* table;  // [vocab_size, hidden_size]
  float scale;                 // of the embedding
  const __nv_bfloat16 *embedding_norm, *hidden_norm;  // [hidden_size]
  // The hidden states of rows; null: they are in `residual`. Rows of padding have a negative row
  // here, and keep what `residual` has.
  const __nv_bfloat16* hidden;
  const int32_t* hidden_rows;  // [num_rows]
  __nv_bfloat16* residual;     // [num_rows, hidden_size]: the hidden states, out
  bool norms_residual;         // the residual is the normed hidden state
  __nv_bfloat16* out;          // [num_rows, 2 * hidden_size]
  int num_rows, hidden_size;   // hidden_size: a multiple of 8, at most 16,384
  float epsilon;
};

inline namespace NEREID_KERNEL_FORM {
void HeadInput(const HeadInputParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
