// When a sequence ends, and which of its tokens may be shown. [engine thread]
#pragma once

#include <cstdint>
#include <span>

#include "backends/llm_core/engine/request.h"

namespace nereid::llm {

// Judges `output_ids` after its last token was added. Stop words are matched in the output alone,
// never across the end of the prompt.
StopVerdict CheckStop(const StopRules& rules, std::span<const int32_t> output_ids);

// What holds when a second judge of the same token said `other`: a stop goes before a length, and
// tokens are held back where either holds them back, unless the other ends the sequence.
StopVerdict Combine(StopVerdict rules, StopVerdict other);

}  // namespace nereid::llm
