// What a step's batch says of one sequence: its tokens, blocks and slot, and what its owner wants
// to know of them. [engine thread]
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/sequence.h"

namespace nereid::llm {

// Appends the next `num_tokens` tokens of `sequence` that are not cached yet. The entry borrows
// from it.
void AppendEntry(const Sequence& sequence, int32_t num_tokens, Batch& batch);

// Fetches the place of the entry that comes after `num_ahead` others.
inline void PrefetchEntry(const Batch& batch, size_t num_ahead) {
  const BatchSequence* entry = batch.sequences.data() + batch.sequences.size() + num_ahead;
  __builtin_prefetch(entry, 1);
  __builtin_prefetch(reinterpret_cast<const char*>(entry) + 64, 1);
}

}  // namespace nereid::llm
