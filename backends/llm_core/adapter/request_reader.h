// From the tensors of a client's request to generation requests for the engine: one for each row of
// the batch. [instance thread]
#pragma once

#include <string>
#include <vector>

#include "backends/llm_core/adapter/lazy_tokenizer.h"
#include "backends/llm_core/adapter/stop_text.h"
#include "backends/llm_core/engine/request.h"
#include "nereid/backend.h"

namespace nereid::llm_adapter {

// What requests fall back to; constant while the model lives.
struct RequestDefaults {
  llm::TokenIds end_ids;         // of the checkpoint
  llm::SamplingParams sampling;  // what a request does not set
  int32_t max_positions = 0;
  int32_t max_beam_width = 1;
  int32_t max_num_sequences = 1;  // of one request
  bool exclude_input_in_output = false;
  LazyTokenizer* tokenizer = nullptr;  // outlives the defaults
  bool finds_words_in_text = true;     // stop_words_list counts as text, too
};

struct GenerationRow {
  llm::TokenIds prompt;
  llm::SamplingParams sampling;
  llm::StopRules stop;
  std::shared_ptr<const StopTexts> stop_texts;  // null: none
  llm::BeamParams beams;
  int32_t num_sequences = 1;
  int32_t priority = 0;
  uint64_t cache_salt = 0;
  bool want_context_logits = false;
  bool want_generation_logits = false;
  bool want_prompt_log_probs = false;
  bool want_cache_stats = false;
  bool want_perf_metrics = false;
};

struct ClientRequest {
  std::string id;
  bool is_stop = false;  // asks to cancel the requests of this id; has no rows
  bool is_streaming = false;
  bool exclude_input = false;
  std::vector<GenerationRow> rows;
};

// INVALID_ARG or UNSUPPORTED names the tensor and both values.
Result<ClientRequest> ReadRequest(Request& request, const RequestDefaults& defaults);

// Words from [2, n]: flat ids, then the cumulative end of each word, padded with -1.
Result<std::vector<llm::TokenIds>> ReadWords(const char* name, std::span<const int32_t> elements);

}  // namespace nereid::llm_adapter
