// The most likely tokens of rows of logits, for clients that want log probabilities of
// alternatives.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

inline constexpr int kMaxTopTokens = 20;      // of a row
inline constexpr int kMaxTopTokenRows = 256;  // in one launch

// Most likely first, the lowest id first for equal logits, as llm_core's FindTopTokens.
struct TopTokensParams {
  const float* logits;     // rows of `stride` floats
  const float* log_sums;   // by row of logits: log of the sum of exp(logit)
  int32_t* ids;            // [num_rows, kMaxTopTokens]; may be pinned host memory
  float* log_probs;        // parallel to `ids`
  int vocab_size, stride;  // vocab_size: at least the greatest count
  int num_rows;
  int32_t rows[kMaxTopTokenRows];    // of logits
  uint8_t counts[kMaxTopTokenRows];  // tokens of each row, up to kMaxTopTokens
};

inline namespace NEREID_KERNEL_FORM {
void FindTopTokens(const TopTokensParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
