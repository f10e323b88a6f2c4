// Verifies the draft tokens of a step on the CPU: chains, trees, and drafts with a distribution.
// [threads of the pool; one an entry]
#pragma once

#include <cstddef>
#include <span>

#include "backends/cpu_reference/model/kv_cache.h"
#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/sampling/sampler.h"

namespace nereid::cpu {

// Samples the tokens of entry `index`, up to the first that is none of its drafts, and stores them
// in `result`; with returns_row_tokens also the tokens of the other rows. `logits`
// [1 + num_draft_tokens, vocab_size] of the entry.
void VerifyDrafts(const llm::StepBatch& batch, size_t index, std::span<float> logits,
                  llm::Sampler& sampler, llm::StepResult& result);

// Moves keys and values of accepted drafts of trees to the places that a chain has.
void MoveAccepted(const llm::StepBatch& batch, const llm::StepResult& result, const KvCache& cache);

}  // namespace nereid::cpu
