// What follows the product of the LM head: logits = cap * tanh((logits + bias) / cap), and minus
// infinity in the columns that pad a row.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

namespace nereid::gpu {

struct FinishLogitsParams {
  float* logits;              // [num_rows, stride]
  const __nv_bfloat16* bias;  // [vocab_size]; null: none
  int num_rows, vocab_size, stride;
  float soft_cap;  // 0: none
};

void FinishLogits(const FinishLogitsParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
