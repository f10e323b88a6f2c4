// Reads and checks the parameters.
#include "backends/llm_core/adapter/llm_parameters.h"

#include <algorithm>
#include <limits>

namespace nereid::llm {
namespace {

Result<int32_t> SizeOr(const ConfigParameters& parameters, const char* key, int32_t otherwise) {
  NEREID_ASSIGN_OR_RETURN(const int64_t value, parameters.Int(key, otherwise));
  if (value >= 0 && value <= std::numeric_limits<int32_t>::max())
    return static_cast<int32_t>(value);
  return InvalidArgError("parameter '", key, "' is ", value, ", expected 0 to ",
                         std::numeric_limits<int32_t>::max());
}

// Rejects parameters that request unsupported features.
Status RefuseUnsupported(const ConfigParameters& parameters) {
  constexpr const char* kMustBeUnset[] = {"encoder_model_path", "medusa_choices", "eagle_choices",
                                          "lora_prefetch_dir"};
  for (const char* key : kMustBeUnset) {
    if (const std::string* value = parameters.Find(key)) {
      return UnsupportedError("parameter '", key, "' is '", *value, "': not supported");
    }
  }
  NEREID_ASSIGN_OR_RETURN(const int64_t num_nodes, parameters.Int("num_nodes", 1));
  if (num_nodes > 1) {
    return UnsupportedError("parameter 'num_nodes' is ", num_nodes,
                            ": not supported, expected 1: all GPUs of a model must be on one host");
  }
  const std::string mode = parameters.String("decoding_mode", "top_k_top_p");
  if (mode != "top_k" && mode != "top_p" && mode != "top_k_top_p" && mode != "auto" &&
      mode != "beam_search") {
    return UnsupportedError("parameter 'decoding_mode' is '", mode,
                            "': not supported (known: top_k, top_p, top_k_top_p, beam_search)");
  }
  const std::string type = parameters.String("gpt_model_type", "inflight_fused_batching");
  if (type != "inflight_fused_batching" && type != "inflight_batching" && type != "V1" &&
      type != "v1") {
    return InvalidArgError("parameter 'gpt_model_type' is '", type,
                           "', expected inflight_fused_batching, inflight_batching or V1");
  }
  return {};
}

void NoteIgnored(const ConfigParameters& parameters, bool supports_cuda_graphs,
                 std::vector<std::string>& notes) {
  for (const char* key : {"kv_cache_host_memory_bytes", "enable_trt_overlap", "gpu_weights_percent",
                          "cuda_graph_mode", "cross_kv_cache_fraction", "normalize_log_probs",
                          "participant_ids", "guided_decoding_backend"}) {
    const std::string* value = parameters.Find(key);
    if (value == nullptr || *value == "0" || *value == "false" || *value == "False") continue;
    if (supports_cuda_graphs && key == std::string_view("cuda_graph_mode")) continue;
    notes.push_back(StrCat("parameter '", key, "' (", *value, ") has no effect in this backend"));
  }
}

Status ReadScheduler(const ConfigParameters& parameters, llm::SchedulerOptions& options,
                     std::vector<std::string>& notes) {
  const std::string policy = parameters.String("batch_scheduler_policy", "guaranteed_no_evict");
  if (policy == "max_utilization") {
    options.policy = llm::CapacityPolicy::kMaxUtilization;
  } else if (policy != "guaranteed_no_evict") {
    notes.push_back(StrCat("parameter 'batch_scheduler_policy' is '", policy,
                           "', expected guaranteed_no_evict or max_utilization; using "
                           "guaranteed_no_evict"));
  }
  NEREID_ASSIGN_OR_RETURN(options.chunked_prefill,
                          parameters.Bool("enable_chunked_context", options.chunked_prefill));
  NEREID_ASSIGN_OR_RETURN(options.prefix_cache,
                          parameters.Bool("enable_kv_cache_reuse", options.prefix_cache));
  return {};
}

// A relative path is relative to the folder of config.pbtxt.
std::string CheckpointDirectory(const ModelContext& context) {
  const std::string path = context.parameters().String("gpt_model_path");
  if (path.empty()) return context.version_directory().string();
  return (context.directory() / path).lexically_normal().string();
}

}  // namespace

Result<LlmParameters> ReadLlmParameters(const ModelContext& context, bool supports_cuda_graphs,
                                        std::vector<std::string>& notes) {
  const ConfigParameters& parameters = context.parameters();
  NEREID_RETURN_IF_ERROR(RefuseUnsupported(parameters));
  NoteIgnored(parameters, supports_cuda_graphs, notes);
  LlmParameters result;
  result.checkpoint_directory = CheckpointDirectory(context);
  NEREID_ASSIGN_OR_RETURN(result.exclude_input_in_output,
                          parameters.Bool("exclude_input_in_output", false));
  const std::string tokenizer = parameters.String("tokenizer_dir");
  result.tokenizer_path = tokenizer.empty()
                              ? result.checkpoint_directory
                              : (context.directory() / tokenizer).lexically_normal().string();
  NEREID_ASSIGN_OR_RETURN(result.skip_special_tokens, parameters.Bool("skip_special_tokens", true));
  if (parameters.Find("clean_up_tokenization_spaces") != nullptr) {
    NEREID_ASSIGN_OR_RETURN(result.cleans_up_spaces,
                            parameters.Bool("clean_up_tokenization_spaces", false));
  }
  NEREID_ASSIGN_OR_RETURN(result.stop_words_in_text, parameters.Bool("stop_words_in_text", true));
  const std::string sampling = parameters.String("sampling_defaults", "none");
  if (sampling != "none" && sampling != "generation_config") {
    return InvalidArgError("parameter 'sampling_defaults' is '", sampling,
                           "', expected none or generation_config");
  }
  result.uses_generation_config = sampling == "generation_config";
  NEREID_RETURN_IF_ERROR(ReadScheduler(parameters, result.scheduler, notes));
  NEREID_ASSIGN_OR_RETURN(result.max_cache_tokens,
                          SizeOr(parameters, "max_tokens_in_paged_kv_cache", 0));
  result.attention_windows = parameters.String("max_attention_window_size");
  NEREID_ASSIGN_OR_RETURN(result.num_sink_tokens, SizeOr(parameters, "sink_token_length", 0));
  result.kv_cache_dtype = parameters.String("kv_cache_dtype", "auto");
  NEREID_ASSIGN_OR_RETURN(result.max_beam_width,
                          SizeOr(parameters, "max_beam_width", result.max_beam_width));
  result.max_beam_width = std::max(1, result.max_beam_width);
  NEREID_ASSIGN_OR_RETURN(result.stats_period_ms,
                          SizeOr(parameters, "stats_check_period_ms", result.stats_period_ms));
  NEREID_ASSIGN_OR_RETURN(result.max_num_sequences,
                          SizeOr(parameters, "max_num_sequences", result.max_num_sequences));
  NEREID_ASSIGN_OR_RETURN(result.max_num_tokens,
                          SizeOr(parameters, "max_num_tokens", result.max_num_tokens));
  NEREID_ASSIGN_OR_RETURN(result.max_positions, SizeOr(parameters, "max_seq_len", 0));
  NEREID_ASSIGN_OR_RETURN(result.num_threads, SizeOr(parameters, "cpu_threads", 0));
  const std::string load_format = parameters.String("load_format", "auto");
  if (load_format != "auto" && load_format != "dummy") {
    return InvalidArgError("parameter 'load_format' is '", load_format,
                           "', expected auto or dummy");
  }
  result.uses_dummy_weights = load_format == "dummy";
  NEREID_ASSIGN_OR_RETURN(result.overlaps_steps, parameters.Bool("overlap_steps", true));
  if (parameters.Find("mixed_step_tokens") != nullptr) {
    NEREID_ASSIGN_OR_RETURN(result.mixed_step_tokens, SizeOr(parameters, "mixed_step_tokens", 0));
  }
  NEREID_ASSIGN_OR_RETURN(result.max_json_whitespace,
                          SizeOr(parameters, "json_whitespace", result.max_json_whitespace));
  NEREID_ASSIGN_OR_RETURN(result.is_batch_invariant, parameters.Bool("batch_invariant", false));
  const Json& queue_policy = context.config().json()["dynamic_batching"]["default_queue_policy"];
  result.max_queue_size = static_cast<int32_t>(queue_policy["max_queue_size"].AsInt());
  return result;
}

}  // namespace nereid::llm
