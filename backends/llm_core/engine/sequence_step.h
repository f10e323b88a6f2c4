// A sequence's part of a step: builds its batch entry, stores the results and emits output to its
// sink. [engine thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/sequence.h"

namespace nereid::llm {

// Appends an entry with the next `num_tokens` tokens of `sequence` that are not cached yet, and
// its num_drafts draft tokens. The entry borrows from the sequence.
void AppendBatchEntry(const Sequence& sequence, int32_t num_tokens, StepBatch& batch);

// Removes the entries, parallel to `is_removed`, with their tokens and the adapters that no other
// entry has.
void RemoveBatchEntries(const std::vector<bool>& is_removed, StepBatch& batch);

// Prefetches the memory of the entry that will be appended after `num_ahead` others.
inline void PrefetchEntry(const StepBatch& batch, size_t num_ahead) {
  const BatchEntry* entry = batch.entries.data() + batch.entries.size() + num_ahead;
  __builtin_prefetch(entry, 1);
  __builtin_prefetch(reinterpret_cast<const char*>(entry) + 64, 1);
}

// Keeps the logits and prompt log probabilities of `entry`, the i-th entry of its batch; with draft
// tokens, those of the accepted ones. Requires sequence.kept_logits.
void KeepLogits(const BatchEntry& entry, size_t i, const StepResult& result, int32_t vocab_size,
                Sequence& sequence);

// Counts the sampled token for the budget of the reasoning. Returns the token that the output gets,
// which is mostly the same. Requires sequence.reasoning, and drops it once the reasoning is over.
SampledToken ApplyReasoningBudget(const SampledToken& sampled, Sequence& sequence);

// Emits the output tokens that are visible, if they are more than before, and the finish reason.
// Not for beam search.
void EmitOutput(Sequence& sequence, const StopResult& stop, int32_t vocab_size);
// Ends the sequence of a cancelled request. An unfinished beam search has no output.
void EmitCancellation(Sequence& sequence, int32_t vocab_size);

}  // namespace nereid::llm
