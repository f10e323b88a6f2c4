// The outputs that come with a few requests only: log probabilities, logits, likely tokens, the
// prompt, statistics. The types say which of them an item has, and what the engine has reported so
// far; the function makes the tensors of a response.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/llm_core/adapter/item_output_sink.h"
#include "backends/llm_core/adapter/response_tensors.h"
#include "backends/llm_core/engine/request.h"

namespace nereid::llm {

// Which extra outputs an item has. [any thread]
struct ExtraOutputs {
  bool log_probs = false;
  int32_t num_top_log_probs = 0;
  int32_t num_prompt_top_log_probs = 0;
  bool generation_logits = false;
  bool prompt_ids = false;
  bool token_ids = false;                    // return_token_ids
  bool cache_stats = false;                  // return_kv_cache_reuse_stats
  bool perf_metrics = false;                 // return_perf_metrics
  std::optional<bool> skips_special_tokens;  // in the text of the output
};

// The content of the extra outputs of one sequence, from one or more steps. [engine thread, then
// response thread]
struct ExtraResults {
  std::vector<float> log_probs;
  std::vector<llm::SampledToken> top_tokens;  // num_top_log_probs for each id
  float cum_log_prob = 0.0f;
  std::vector<llm::SampledToken> prompt_top_tokens;
  std::vector<float> prompt_log_probs, context_logits, generation_logits;
  int32_t num_reused_blocks = 0;
  int32_t num_new_blocks = 0;
  int32_t num_cached_tokens = 0;
  int64_t num_draft_tokens = 0;
  int64_t num_accepted_draft_tokens = 0;

  // Adds what comes only once, with the first output of a request.
  void AppendPrompt(const llm::SequenceOutput& output);
  // Adds what comes with the ids from `first` on. `num_ids`: all ids of the update, with those that
  // follow the output's and were not sampled.
  void AppendTokens(const llm::SequenceOutput& output, size_t first, size_t num_ids,
                    const ExtraOutputs& asked);
};

// The output of a sequence from one or more steps.
struct SequenceUpdate {
  llm::TokenIds ids;
  int32_t num_output = 0;  // emitted in total, `ids` included
  std::string stop_reason;
  SequenceTiming timing;
  llm::FinishReason finish = llm::FinishReason::kNone;
  Status error;
  ExtraResults extras;

  bool is_over() const { return finish != llm::FinishReason::kNone || !error.ok(); }
};

// Sets the extra outputs of a response with these sequences, the longest of which has `longest`
// ids. `prompt`: the ids to send, null if they were sent before. `is_first`: of the first response
// of a sequence. [response thread]
Status SetExtraOutputs(ResponseTensors& to, const ExtraOutputs& asked,
                       std::span<const SequenceUpdate> all, size_t longest,
                       const llm::TokenIds* prompt, bool is_first);

}  // namespace nereid::llm
