// Writes a sampled token for the host and for the next step. `id` may be llm::kNoToken: the next
// step then gets a valid id, whose result the engine discards. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/sampling/sample.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

__device__ __forceinline__ void WriteToken(const SampleTarget& target, int row, int32_t id,
                                           float log_prob) {
  const int at = *target.buffer_index * target.max_num_rows + row;
  target.ids[at] = id;
  target.log_probs[at] = log_prob;
  const int slot = target.slots[row];
  if (slot >= 0) target.last_tokens[slot] = id < 0 ? 0 : id;
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
