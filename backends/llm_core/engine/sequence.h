// A request in the engine: its tokens, its place in the cache, its output. Owned by the scheduler.
// [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "llm_core/engine/request.h"

namespace nereid::llm {

struct Sequence {
  std::unique_ptr<GenerationRequest> request;
  std::vector<int32_t> token_ids;  // prompt, then every token drawn
  int32_t num_prompt = 0;
  int32_t num_cached = 0;     // tokens whose keys and values are in the cache
  int32_t num_scheduled = 0;  // tokens of the current step
  int32_t slot = -1;          // while running
  std::vector<int32_t> block_table;
  int32_t num_reserved_blocks = 0;  // under guaranteed_no_evict: all that it can ever need
  bool was_scheduled = false;

  std::vector<float> log_probs;  // of the tokens drawn, when wanted
  int32_t num_released = 0;      // tokens drawn that the sink has seen
  FinishReason finish = FinishReason::kNone;

  int32_t num_tokens() const { return static_cast<int32_t>(token_ids.size()); }
  int32_t num_output() const { return num_tokens() - num_prompt; }
  std::span<const int32_t> output_ids() const {
    return std::span<const int32_t>(token_ids).subspan(num_prompt);
  }
  int32_t max_tokens() const { return num_prompt + request->stop.max_tokens; }
};

}  // namespace nereid::llm
