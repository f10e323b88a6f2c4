// Log probabilities of given tokens: of prompts, whose next token is known.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nereid::gpu {

struct PickLogProbsParams {
  const float* logits;    // [num_rows, stride]
  const float* log_sums;  // [num_rows]: log of the sum of exp(logit)
  const int32_t* ids;     // [num_rows]; negative: nothing is written for the row
  float* log_probs;       // [num_rows]
  int num_rows, stride;
};

void PickLogProbs(const PickLogProbsParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
