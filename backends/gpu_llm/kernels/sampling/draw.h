// Draws tokens from rows of logits by llm_core's rules (llm_core/sampling/sampler.h), for rows that
// want more than their likeliest token.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/draw_plan.h"
#include "backends/gpu_llm/kernels/sampling/sample.h"

namespace nereid::gpu {

struct DrawParams {
  float* logits;          // [num_rows, vocab_size]; rules are applied in place
  const float* log_sums;  // [num_rows], of the logits as they came
  const DrawItem* items;  // [num_items]
  LogitEdit* edits;       // of all items
  SampleTarget target;
  int num_items, vocab_size;  // vocab_size: a multiple of 4
};

void DrawTokens(const DrawParams& params, cudaStream_t stream);

}  // namespace nereid::gpu
