// Token embedding: out[row] = table[id of row] * scale (+ position_table[position of row]). A row
// may come from the client instead of the table.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

struct EmbeddingParams {
  const int32_t* ids;          // [num_rows]; negative: the token last sampled for slot -1 - id
  const int32_t* last_tokens;  // [max_num_sequences]
  const __nv_bfloat16* table;  // [vocab_size, hidden_size]
  const int32_t* positions;    // [num_rows]
  const __nv_bfloat16* position_table;  // [max_positions, hidden_size]; null: none
  // Of virtual tokens: StepLayout::prompt_rows, and the rows [.., hidden_size], which may be in
  // pinned host memory. null: none
  const int32_t* prompt_row_of;
  const __nv_bfloat16* prompt_rows;
  __nv_bfloat16* out;         // [num_rows, hidden_size]
  int num_rows, hidden_size;  // hidden_size: a multiple of 8
  float scale;
};

inline namespace NEREID_KERNEL_FORM {
void Embed(const EmbeddingParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
