// What a sequence keeps of a step's results, and what its sink gets to see of it. [engine thread]
#pragma once

#include <cstdint>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/sequence.h"

namespace nereid::llm {

// Keeps logits and prompt log probabilities of `entry`, the i-th of its batch. Requires
// sequence.rows.
void KeepRows(const BatchSequence& entry, size_t i, const StepResult& result, int32_t vocab_size,
              Sequence& sequence);

// The sink gets the first `num_visible` tokens of output, if that is more than it has seen, and the
// finish reason. Not for beams.
void PutOut(Sequence& sequence, int32_t num_visible, int32_t vocab_size);

}  // namespace nereid::llm
