// The parameters of config.pbtxt that an LLM backend reads: those of the `tensorrt_llm` model and a
// few of our own. Read once at load. [load thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/llm_core/engine/scheduler.h"
#include "nereid/backend.h"

namespace nereid::llm_adapter {

struct LlmParameters {
  std::string checkpoint_directory;  // gpt_model_path; default: the version directory
  std::string tokenizer_path;        // tokenizer_dir; default: the checkpoint's directory
  bool skip_special_tokens = true;   // of texts that stop words are looked for in
  bool stop_words_in_text = true;    // our own: stop_words_list is looked for in the text, too
  // sampling_defaults, our own: generation_config, or none: greedy, as the model always was
  bool uses_generation_config = false;
  bool exclude_input_in_output = false;
  llm::SchedulerOptions
      scheduler;  // batch_scheduler_policy, enable_chunked_context, enable_kv_cache_reuse
  int64_t max_cache_tokens = 0;  // max_tokens_in_paged_kv_cache; 0: the executor decides
  int32_t max_beam_width = 1;
  std::string attention_windows;  // max_attention_window_size: one a layer, repeated; empty: none
  int32_t num_sink_tokens = 0;    // sink_token_length
  std::string kv_cache_dtype;     // our own: auto, float, int8 or fp8, as the executor has them
  int32_t stats_period_ms = 100;  // stats_check_period_ms: how often metrics are renewed
  int32_t max_queue_size = 0;     // of dynamic_batching's default queue policy; 0: no limit
  // Our own.
  int32_t max_num_sequences = 64;  // that run at the same time
  int32_t max_num_tokens = 256;    // of one step
  int32_t max_positions = 0;       // max_seq_len; 0: the model's
  int32_t num_threads = 0;         // cpu_threads; 0: all processors
  bool makes_up_weights = false;   // load_format: auto, or dummy: config.json alone is read
  bool overlaps_steps = true;      // overlap_steps: plan a step while one runs, where possible
  // mixed_step_tokens: SchedulerOptions'; as the backend prefers, when not given
  std::optional<int32_t> mixed_step_tokens;
  // batch_invariant: a request has the same bits alone and in any batch
  bool is_batch_invariant = false;
};

// Unknown keys are left alone. A value that asks for what is not supported is refused by its key;
// one that only tunes what this backend does not have is named in `notes`, for the log;
// `records_steps`: whether it has what cuda_graph_mode tunes.
Result<LlmParameters> ReadLlmParameters(const ModelContext& context, bool records_steps,
                                        std::vector<std::string>& notes);

}  // namespace nereid::llm_adapter
