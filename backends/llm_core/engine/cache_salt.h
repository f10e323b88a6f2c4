// The salt under which a sequence's blocks are found in the prefix cache: sequences share blocks
// only if their keys and values of the same tokens are the same. Pure function. [engine thread]
#pragma once

#include <cstdint>

#include "backends/llm_core/engine/sequence.h"

namespace nereid::llm {

// `dynamic_rope_positions`: see ExecutorLimits. Contains kSaltOfThisProcess.
uint64_t CacheSaltOf(const Sequence& sequence, int32_t dynamic_rope_positions);

}  // namespace nereid::llm
