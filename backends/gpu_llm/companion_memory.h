// The memory that a draft model, an EAGLE-3 head or Medusa heads will take on the GPU of the model
// that it drafts for, which is loaded first and leaves it free. No CUDA here. [load thread]
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/llm_core/model/architecture.h"
#include "backends/llm_core/speculation/eagle3_head.h"
#include "backends/llm_core/speculation/medusa_weights.h"

namespace nereid::gpu {

struct CompanionMemory {
  int64_t fixed_bytes = 0;  // weights and buffers
  int64_t block_bytes = 0;  // of its own KV cache, for each KV block of the model
};

// What a draft model takes. `block_bytes`: of a KV block of the draft model. The maxima are those
// of its executor's options.
CompanionMemory MemoryOfDraftModel(const llm::DecoderModel& draft, int64_t block_bytes,
                                   int32_t max_num_tokens, int32_t max_num_sequences);
// Tokens whose hidden states a head keeps until it runs them: those of a step of the model.
inline int32_t NumKeptRows(int32_t max_num_tokens) {
  return std::max(max_num_tokens, 1024);
}
// What an EAGLE-3 head takes. The hidden states of `target`, its model, are kept for each of the
// `max_num_tokens` rows of a step, and of NumKeptRows() tokens.
CompanionMemory MemoryOfHead(const llm::Eagle3Head& head, const llm::DecoderSpec& target,
                             int64_t block_bytes, int32_t max_num_tokens,
                             int32_t max_num_sequences);
// Sequences whose rows Medusa heads compute in one pass over their weights.
inline constexpr int32_t kMedusaRows = 64;
// What Medusa heads take: their weights in bf16, their buffers, the hidden states of a step of the
// model, and the kept hidden state of each sequence.
CompanionMemory MemoryOfMedusaHeads(const llm::MedusaWeights& heads, int32_t max_num_tokens,
                                    int32_t max_num_sequences);

}  // namespace nereid::gpu
