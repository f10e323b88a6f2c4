// When a sequence ends, and which of its tokens may be shown. [engine thread]
#pragma once

#include <cstdint>
#include <span>

#include "llm_core/engine/request.h"

namespace nereid::llm {

struct StopVerdict {
  FinishReason finish = FinishReason::kNone;
  // Output tokens that may be put out now: an end id and a completed stop word are cut off; tokens
  // that may be the beginning of a stop word are held back until the sequence goes on or ends.
  int32_t num_visible = 0;
};

// Judges `output_ids` after its last token was added. Stop words are matched in the output alone,
// never across the end of the prompt.
StopVerdict CheckStop(const StopRules& rules, std::span<const int32_t> output_ids);

}  // namespace nereid::llm
