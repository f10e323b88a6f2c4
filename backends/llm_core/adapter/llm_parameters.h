// The parameters of config.pbtxt that an LLM backend reads: those of the `tensorrt_llm` model and
// some extensions of Nereid. Read once at load. [load thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/llm_core/adapter/lora_requests.h"
#include "backends/llm_core/engine/scheduler.h"
#include "backends/llm_core/kv_events/kv_event_publisher.h"
#include "backends/llm_core/kv_tiers/kv_tier_options.h"
#include "backends/llm_core/speculation/method.h"
#include "nereid/backend.h"

namespace nereid::llm {

// The parameter decoding_mode: which inputs of a request may choose the tokens.
enum class DecodingMode : uint8_t { kAny, kTopK, kTopP, kTopKTopP, kBeamSearch };

struct LlmParameters {
  std::string checkpoint_directory;  // gpt_model_path; default: the version directory
  std::string tokenizer_path;        // tokenizer_dir; default: the checkpoint's directory
  bool skip_special_tokens = true;   // for the text in which stop words are searched
  // clean_up_tokenization_spaces, for the same text; if absent, as the tokenizer's files say
  std::optional<bool> cleans_up_spaces;
  // Extension: stop_words_list is also matched in the text.
  bool stop_words_in_text = true;
  // Extension sampling_defaults: "generation_config", or "none", which is greedy as in the
  // `tensorrt_llm` model.
  bool uses_generation_config = false;
  DecodingMode decoding_mode = DecodingMode::kAny;
  bool is_v1 = false;  // gpt_model_type: only the metrics differ
  bool exclude_input_in_output = false;
  llm::SchedulerOptions
      scheduler;  // batch_scheduler_policy, enable_chunked_context, enable_kv_cache_reuse
  LoraParameters lora;
  int64_t max_cache_tokens = 0;  // max_tokens_in_paged_kv_cache; 0: chosen by the executor
  int32_t max_beam_width = 1;
  std::string attention_windows;  // max_attention_window_size: per layer, repeated; empty: none
  int32_t num_sink_tokens = 0;    // sink_token_length
  KvTierOptions tiers;         // kv_cache_host_memory_bytes; extensions kv_cache_disk_path, _bytes
  KvEventOptions events;       // kv_events_endpoint, _replay_endpoint, _topic, _form
  std::string kv_cache_dtype;  // extension: auto, float, int8 or fp8, if the executor supports it
  int32_t stats_period_ms = 100;  // stats_check_period_ms: update period of the metrics
  int32_t max_queue_size = 0;     // default_queue_policy of dynamic_batching; 0: no limit
  // Extensions:
  int32_t max_num_sequences = 64;   // running at the same time
  int32_t max_num_tokens = 256;     // in one step
  int32_t max_positions = 0;        // max_seq_len; 0: the limit of the model
  int32_t num_threads = 0;          // cpu_threads; 0: all processors
  bool uses_dummy_weights = false;  // load_format "dummy": only config.json is read
  bool overlaps_steps = true;       // overlap_steps: schedule a step while one runs
  // mixed_step_tokens: see SchedulerOptions. If absent, the backend's default.
  std::optional<int32_t> mixed_step_tokens;
  // json_whitespace: the longest run of white space between tokens of JSON that a JSON guide
  // allows, in bytes
  int32_t max_json_whitespace = 32;
  // speculative_decoding: as given, and what it means together with decoding_mode lookahead and the
  // sizes of lookahead decoding
  std::string speculative_decoding = "off";
  SpeculationMethod speculation;
  int32_t max_draft_tokens = 0;  // of a sequence in one step; 0: the drafter's default
  // The paths of explicit trees; empty: the likeliest ones.
  std::string medusa_choices, eagle_choices;
  // Set for the executor of a draft model, which is made of a copy of the model's parameters.
  bool is_draft_model = false;
  // batch_invariant: require bit-identical results alone and in any batch
  bool is_batch_invariant = false;
};

// The table of backends/llm_tables says what becomes of each parameter: a misspelt key, a value
// that is not of the kind and an unsupported feature are errors that name the key. Parameters
// without effect in this backend, and other keys, are reported in `notes` for the log.
Result<LlmParameters> ReadLlmParameters(const ModelContext& context, bool is_on_gpu,
                                        std::vector<std::string>& notes);

}  // namespace nereid::llm
