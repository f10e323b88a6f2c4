// Kernels on rows of logits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

// Applies the LM head's bias and soft cap: logits = cap * tanh((logits + bias) / cap). Sets the
// columns that pad a row to minus infinity.
struct FinishLogitsParams {
  float* logits;              // [num_rows, stride]
  const __nv_bfloat16* bias;  // [vocab_size]; null: none
  int num_rows, vocab_size, stride;
  float soft_cap;  // 0: none
};

inline namespace NEREID_KERNEL_FORM {
void FinishLogits(const FinishLogitsParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// Rows of logits of a part of the vocabulary, as rows of the whole one:
// out[row][target_ids[i]] = in[row][i], and minus infinity elsewhere.
struct SpreadLogitsParams {
  const float* in;            // [num_rows, in_stride]
  const int32_t* target_ids;  // [num_columns]
  float* out;                 // [num_rows, out_stride]
  int num_rows, num_columns;
  int in_stride, out_stride;  // out_stride: a multiple of 4
};

inline namespace NEREID_KERNEL_FORM {
void SpreadLogits(const SpreadLogitsParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

// Log probabilities of given tokens: of prompt tokens, whose successor is known.
struct PickLogProbsParams {
  const float* logits;    // [num_rows, stride]
  const float* log_sums;  // [num_rows]: log of the sum of exp(logit)
  const int32_t* ids;     // [num_rows]; negative: the row is skipped
  float* log_probs;       // [num_rows]
  int num_rows, stride;
};

inline namespace NEREID_KERNEL_FORM {
void PickLogProbs(const PickLogProbsParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
