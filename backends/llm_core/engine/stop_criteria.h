// Decides when a sequence ends and which of its tokens may be emitted. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backends/llm_core/sampling/sampling_params.h"

namespace nereid::llm {

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled };

// Returns "", "stop", "length" or "cancelled".
std::string_view FinishReasonText(FinishReason reason);

struct StopResult {
  FinishReason finish = FinishReason::kNone;
  // Number of output tokens that may be emitted now. An end id and a completed stop word are cut
  // off unless StopCriteria::includes_stop. Tokens that may begin a stop word are held back until
  // the sequence continues or ends.
  int32_t num_visible = 0;
  // If the reason is kStop, one of these says what ended the sequence: an end id, or the index of a
  // stop word. The other one is -1.
  int32_t end_id = -1;
  int32_t stop_word = -1;
};

// When a sequence ends.
struct StopCriteria {
  int32_t max_tokens = 0;  // output tokens, at least 1
  int32_t min_tokens = 0;  // end ids and stop words do not count before this many output tokens
  TokenIds end_ids;        // any of them ends the sequence and is not emitted
  std::vector<TokenIds> stop_words;  // completing one ends the sequence; its tokens are not emitted
  bool includes_stop = false;        // end id and stop word are emitted
};

// Checks `output_ids` after its last token was added. Stop words are matched in the output only,
// never across the end of the prompt.
StopResult CheckStop(const StopCriteria& rules, std::span<const int32_t> output_ids);

// Combines two results for the same token. A stop precedes a length limit. Tokens are held back if
// either result holds them back, unless the other one ends the sequence.
StopResult Combine(StopResult rules, StopResult other);

}  // namespace nereid::llm
