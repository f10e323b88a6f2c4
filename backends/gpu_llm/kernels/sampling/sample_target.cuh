// Hands a token out: to the host, and to the next step. Device code alone.
#pragma once

#include "backends/gpu_llm/kernels/sampling/sample.h"

namespace nereid::gpu {

__device__ __forceinline__ void PutToken(const SampleTarget& target, int row, int32_t id,
                                         float log_prob) {
  const int at = *target.half * target.max_num_rows + row;
  target.ids[at] = id;
  target.log_probs[at] = log_prob;
  const int slot = target.slots[row];
  if (slot >= 0) target.last_tokens[slot] = id;
}

}  // namespace nereid::gpu
