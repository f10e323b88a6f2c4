// Reads and checks the parameters.
#include "backends/llm_core/adapter/llm_parameters.h"

#include <algorithm>
#include <limits>

#include "backends/llm_tables/engine_parameters.h"

namespace nereid::llm {
namespace {

Result<int32_t> SizeOr(const ConfigParameters& parameters, const char* key, int32_t otherwise) {
  NEREID_ASSIGN_OR_RETURN(const int64_t value, parameters.Int(key, otherwise));
  if (value >= 0 && value <= std::numeric_limits<int32_t>::max())
    return static_cast<int32_t>(value);
  return InvalidArgError("parameter '", key, "' is ", value, ", expected 0 to ",
                         std::numeric_limits<int32_t>::max());
}

// Checks all parameters by the table and adds to `notes` the lines for those without an effect.
Status CheckAll(const ConfigParameters& parameters, bool is_on_gpu,
                std::vector<std::string>& notes) {
  for (const auto& [key, value] : parameters.all()) {
    NEREID_RETURN_IF_ERROR(CheckEngineParameter(key, value));
    std::string note = NoteOnEngineParameter(key, value, is_on_gpu);
    if (!note.empty()) notes.push_back(std::move(note));
  }
  const auto conflict =
      FindParameterConflict([&](std::string_view key) { return parameters.String(key); });
  return conflict.has_value() ? conflict->status : Status();
}

DecodingMode ReadDecodingMode(const ConfigParameters& parameters) {
  const std::string name = parameters.String("decoding_mode", "auto");
  if (name == "top_k") return DecodingMode::kTopK;
  if (name == "top_p") return DecodingMode::kTopP;
  if (name == "top_k_top_p") return DecodingMode::kTopKTopP;
  return name == "beam_search" ? DecodingMode::kBeamSearch : DecodingMode::kAny;
}

Status ReadScheduler(const ConfigParameters& parameters, llm::SchedulerOptions& options) {
  const std::string policy = parameters.String("batch_scheduler_policy", "guaranteed_no_evict");
  if (policy == "max_utilization") options.policy = llm::CapacityPolicy::kMaxUtilization;
  NEREID_ASSIGN_OR_RETURN(options.chunked_prefill,
                          parameters.Bool("enable_chunked_context", options.chunked_prefill));
  NEREID_ASSIGN_OR_RETURN(options.prefix_cache,
                          parameters.Bool("enable_kv_cache_reuse", options.prefix_cache));
  return {};
}

// A relative folder of weights is relative to the folder of config.pbtxt.
Status ReadSpeculation(const ModelContext& context, LlmParameters& result) {
  const ConfigParameters& parameters = context.parameters();
  const auto value_of = [&](std::string_view key) { return parameters.String(key); };
  NEREID_ASSIGN_OR_RETURN(result.speculation, FindSpeculationMethod(value_of));
  const bool is_lookahead = result.speculation.kind == DrafterKind::kLookahead;
  result.speculative_decoding =
      parameters.String("speculative_decoding", is_lookahead ? "lookahead" : "off");
  if (result.speculation.has_weights()) {
    result.speculation.folder =
        (context.directory() / result.speculation.folder).lexically_normal().string();
  }
  NEREID_ASSIGN_OR_RETURN(result.max_draft_tokens,
                          SizeOr(parameters, "max_draft_tokens", result.max_draft_tokens));
  if (is_lookahead) {  // its sizes say how many there are
    result.max_draft_tokens = static_cast<int32_t>(result.speculation.lookahead.num_drafts());
  }
  result.medusa_choices = parameters.String("medusa_choices", "");
  result.eagle_choices = parameters.String("eagle_choices", "");
  return {};
}

// A relative path is relative to the folder of config.pbtxt.
Result<KvTierOptions> ReadTiers(const ModelContext& context, bool has_prefix_cache) {
  const ConfigParameters& parameters = context.parameters();
  KvTierOptions tiers;
  tiers.log = [model = std::string(context.name())](const std::string& line) {
    LogWarning(StrCat("model '", model, "': ", line));
  };
  NEREID_ASSIGN_OR_RETURN(tiers.host_bytes, parameters.Int("kv_cache_host_memory_bytes", 0));
  NEREID_ASSIGN_OR_RETURN(tiers.file_bytes, parameters.Int("kv_cache_disk_bytes", 0));
  const std::string path = parameters.String("kv_cache_disk_path");
  if (!path.empty()) tiers.file_path = (context.directory() / path).lexically_normal().string();
  if (!tiers.is_enabled() || has_prefix_cache) return tiers;
  tiers.log(
      "parameters 'kv_cache_host_memory_bytes' and 'kv_cache_disk_path' have no effect: "
      "'enable_kv_cache_reuse' is false");
  return KvTierOptions();
}

KvEventOptions ReadEvents(const ModelContext& context) {
  const ConfigParameters& parameters = context.parameters();
  KvEventOptions events;
  events.endpoint = parameters.String("kv_events_endpoint");
  events.replay_endpoint = parameters.String("kv_events_replay_endpoint");
  events.topic = parameters.String("kv_events_topic");
  events.has_lists = parameters.String("kv_events_form", "maps") == "lists";
  events.log = [model = std::string(context.name())](const std::string& line) {
    LogWarning(StrCat("model '", model, "': ", line));
  };
  return events;
}

// Relative paths are relative to the folder of config.pbtxt.
Status ReadCheckpointAndText(const ModelContext& context, LlmParameters& result) {
  const ConfigParameters& parameters = context.parameters();
  const auto path_or = [&](const char* key, std::string otherwise) {
    const std::string path = parameters.String(key);
    return path.empty() ? otherwise : (context.directory() / path).lexically_normal().string();
  };
  result.checkpoint_directory = path_or("gpt_model_path", context.version_directory().string());
  result.uses_dummy_weights = parameters.String("load_format", "auto") == "dummy";
  result.tokenizer_path = path_or("tokenizer_dir", result.checkpoint_directory);
  NEREID_ASSIGN_OR_RETURN(result.skip_special_tokens, parameters.Bool("skip_special_tokens", true));
  if (parameters.Find("clean_up_tokenization_spaces") != nullptr) {
    NEREID_ASSIGN_OR_RETURN(result.cleans_up_spaces,
                            parameters.Bool("clean_up_tokenization_spaces", false));
  }
  NEREID_ASSIGN_OR_RETURN(result.stop_words_in_text, parameters.Bool("stop_words_in_text", true));
  return {};
}

// What the model does with requests, beside their text.
Status ReadRequestParameters(const ConfigParameters& parameters, LlmParameters& result) {
  result.decoding_mode = ReadDecodingMode(parameters);
  result.uses_generation_config =
      parameters.String("sampling_defaults", "none") == "generation_config";
  NEREID_ASSIGN_OR_RETURN(result.exclude_input_in_output,
                          parameters.Bool("exclude_input_in_output", false));
  NEREID_ASSIGN_OR_RETURN(result.max_beam_width,
                          SizeOr(parameters, "max_beam_width", result.max_beam_width));
  result.max_beam_width = std::max(1, result.max_beam_width);
  NEREID_ASSIGN_OR_RETURN(result.max_json_whitespace,
                          SizeOr(parameters, "json_whitespace", result.max_json_whitespace));
  return {};
}

// Sizes of the context, the KV cache and a step, and how steps are computed.
Status ReadExecution(const ConfigParameters& parameters, LlmParameters& result) {
  NEREID_ASSIGN_OR_RETURN(result.max_positions, SizeOr(parameters, "max_seq_len", 0));
  result.attention_windows =
      parameters.String("max_attention_window_size", parameters.String("max_kv_cache_length"));
  NEREID_ASSIGN_OR_RETURN(result.num_sink_tokens, SizeOr(parameters, "sink_token_length", 0));
  NEREID_ASSIGN_OR_RETURN(result.max_cache_tokens,
                          SizeOr(parameters, "max_tokens_in_paged_kv_cache", 0));
  result.kv_cache_dtype = parameters.String("kv_cache_dtype", "auto");
  NEREID_ASSIGN_OR_RETURN(result.max_num_sequences,
                          SizeOr(parameters, "max_num_sequences", result.max_num_sequences));
  NEREID_ASSIGN_OR_RETURN(result.max_num_tokens,
                          SizeOr(parameters, "max_num_tokens", result.max_num_tokens));
  if (parameters.Find("mixed_step_tokens") != nullptr) {
    NEREID_ASSIGN_OR_RETURN(result.mixed_step_tokens, SizeOr(parameters, "mixed_step_tokens", 0));
  }
  NEREID_ASSIGN_OR_RETURN(result.num_threads, SizeOr(parameters, "cpu_threads", 0));
  NEREID_ASSIGN_OR_RETURN(result.overlaps_steps, parameters.Bool("overlap_steps", true));
  NEREID_ASSIGN_OR_RETURN(result.is_batch_invariant, parameters.Bool("batch_invariant", false));
  return {};
}

}  // namespace

Result<LlmParameters> ReadLlmParameters(const ModelContext& context, bool is_on_gpu,
                                        std::vector<std::string>& notes) {
  const ConfigParameters& parameters = context.parameters();
  NEREID_RETURN_IF_ERROR(CheckAll(parameters, is_on_gpu, notes));
  LlmParameters result;
  NEREID_RETURN_IF_ERROR(ReadCheckpointAndText(context, result));
  NEREID_RETURN_IF_ERROR(ReadRequestParameters(parameters, result));
  NEREID_RETURN_IF_ERROR(ReadExecution(parameters, result));
  NEREID_RETURN_IF_ERROR(ReadScheduler(parameters, result.scheduler));
  NEREID_ASSIGN_OR_RETURN(result.lora, ReadLoraParameters(context));
  result.events = ReadEvents(context);
  NEREID_ASSIGN_OR_RETURN(result.tiers, ReadTiers(context, result.scheduler.prefix_cache));
  NEREID_RETURN_IF_ERROR(ReadSpeculation(context, result));
  const std::string type = parameters.String("gpt_model_type");
  result.is_v1 = type == "V1" || type == "v1";
  NEREID_ASSIGN_OR_RETURN(result.stats_period_ms,
                          SizeOr(parameters, "stats_check_period_ms", result.stats_period_ms));
  const Json& queue_policy = context.config().json()["dynamic_batching"]["default_queue_policy"];
  result.max_queue_size = static_cast<int32_t>(queue_policy["max_queue_size"].AsInt());
  return result;
}

}  // namespace nereid::llm
