// The rows of the table, and the checks and texts that follow from a row.
#include "backends/llm_tables/engine_parameters.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>
#include <vector>

#include "backends/llm_tables/engine_tensors.h"
#include "base/closest_name.h"

namespace nereid::llm {
namespace {

using enum ParameterKind;
using enum ParameterRule;

constexpr const char* kAnySize = "0 2147483647";
constexpr const char* kOn = "true True TRUE 1 t y yes";
constexpr const char* kOff = "false False FALSE 0 f n no";

constexpr EngineParameter kParameters[] = {
    {"gpt_model_type", kChoice, kUsed, "in-flight batching; V1 is batched in flight, too",
     "inflight_fused_batching inflight_batching V1 v1"},
    {"gpt_model_path", kText, kUsed, "the checkpoint's folder"},
    {"tokenizer_dir", kText, kUsed, "the tokenizer's folder, for stop words and guides"},
    {"max_beam_width", kRange, kUsed, "the greatest beam_width of a request", kAnySize},
    {"max_tokens_in_paged_kv_cache", kRange, kUsed,
     "the size of the KV cache; with kv_cache_free_gpu_mem_fraction the smaller counts", kAnySize},
    {"max_attention_window_size", kSizes, kUsed, "attention windows, for each layer"},
    {"max_kv_cache_length", kSizes, kUsed, "an older name of max_attention_window_size"},
    {"sink_token_length", kRange, kUsed, "attention sinks", kAnySize},
    {"batch_scheduler_policy", kChoice, kUsed, "whether running requests may be preempted",
     "guaranteed_no_evict max_utilization"},
    {"kv_cache_free_gpu_mem_fraction", kFraction, kUsedOnGpu, "the KV cache's part of GPU memory"},
    {"enable_kv_cache_reuse", kBool, kUsed, "the prefix cache"},
    {"enable_chunked_context", kBool, kUsed, "prompts are processed in chunks"},
    {"exclude_input_in_output", kBool, kUsed, "whether output_ids begins with the prompt"},
    {"stats_check_period_ms", kRange, kUsed, "how often metrics are updated", kAnySize},
    {"decoding_mode", kChoice, kUsed, "the inputs that requests may use: see above",
     "auto top_k top_p top_k_top_p beam_search lookahead medusa eagle"},
    {"gpu_device_ids", kDeviceIds, kUsedOnGpu, "the GPUs of the model"},
    {"cuda_graph_mode", kBool, kUsedOnGpu, "whether steps are recorded", "", kOff},
    {"cross_kv_cache_fraction", kFraction, kRefused, "encoder-decoder models"},
    {"encoder_model_path", kText, kRefused, "encoder-decoder models"},
    {"medusa_choices", kText, kUsed, "the tree of drafts of speculative_decoding medusa=FOLDER"},
    {"eagle_choices", kText, kUsed, "the tree of drafts of speculative_decoding eagle3=FOLDER"},
    {"lookahead_window_size", kRange, kUsed,
     "lookahead decoding: columns of the window; by default 4", "1 128"},
    {"lookahead_ngram_size", kRange, kUsed, "lookahead decoding: tokens of an n-gram; by default 3",
     "2 129"},
    {"lookahead_verification_set_size", kRange, kUsed,
     "lookahead decoding: n-grams that a step verifies; by default 4", "0 127"},
    {"num_nodes", kInt, kRefused, "models on several hosts: all GPUs must be on one host", "",
     "0 1"},
    {"normalize_log_probs", kBool, kRefused,
     "log probabilities relative to the candidates: they are those of the whole vocabulary", "",
     kOff},
    {"lora_prefetch_dir", kText, kUsed, "a folder of LoRA tasks that are in the cache at first"},
    {"lora_cache_max_adapter_size", kRange, kUsed, "the greatest rank of a LoRA adapter", "1 4096"},
    {"lora_cache_host_memory_bytes", kRange, kUsed,
     "the memory of LoRA adapters that requests sent", "0"},
    {"lora_cache_optimal_adapter_size", kInt, kNoted, "the cache of LoRA adapters"},
    {"lora_cache_gpu_memory_fraction", kFraction, kUsedOnGpu, "the GPU's memory for LoRA adapters"},
    {"guided_decoding_backend", kText, kNoted, "the library of guided decoding"},
    {"xgrammar_tokenizer_info_path", kText, kNoted, "the library of guided decoding"},
    {"speculative_decoding_fast_logits", kBool, kNoted, "the transfer of a draft model's logits",
     "", kOff},
    {"kv_cache_host_memory_bytes", kRange, kUsed, "host memory for evicted blocks of prompts", "0"},
    {"kv_cache_onboard_blocks", kBool, kNoted,
     "blocks in host memory are always copied back before they are used", "", kOn},
    {"cancellation_check_period_ms", kInt, kNoted, "cancellations are seen after 2 ms"},
    {"recv_poll_period_ms", kInt, kNoted, "the engine does not poll for requests"},
    {"iter_stats_max_iterations", kInt, kNoted, "statistics that are kept for later"},
    {"request_stats_max_iterations", kInt, kNoted, "statistics that are kept for later"},
    {"enable_trt_overlap", kBool, kNoted, "overlap_steps is the setting here", "", kOff},
    {"enable_context_fmha_fp32_acc", kBool, kNoted, "attention always accumulates in FP32", "",
     kOff},
    {"multi_block_mode", kBool, kNoted, "how attention is divided on the GPU", "", kOff},
    {"cuda_graph_cache_size", kInt, kNoted, "the engine chooses what it records"},
    {"gpu_weights_percent", kFraction, kUsedOnGpu, "the part of the layers' weights in GPU memory",
     "", "1 1.0"},
    {"participant_ids", kText, kNoted, "there are no worker processes"},
    {"executor_worker_path", kText, kNoted, "there are no worker processes"},
    {"worker_path", kText, kNoted, "there are no worker processes"},
    {"FORCE_CPU_ONLY_INPUT_TENSORS", kText, kNoted, "inputs are always read on the CPU"},
    // Extensions of this host.
    {"max_num_sequences", kRange, kUsed, "sequences at the same time", kAnySize},
    {"max_num_tokens", kRange, kUsed, "tokens in one step", kAnySize},
    {"mixed_step_tokens", kRange, kUsed, "tokens in a step that also decodes", kAnySize},
    {"max_seq_len", kRange, kUsed, "the context's size", kAnySize},
    {"cpu_threads", kRange, kUsedOnCpu, "threads of the engine", "0 1024"},
    {"profile_steps", kInt, kUsedOnGpu, "steps whose operators are timed"},
    {"warm_up_seconds", kRange, kUsedOnGpu,
     "how long steps of many sizes run at load at most, so that no request waits for them",
     "0 3600"},
    {"fused_decode", kBool, kUsedOnGpu, "whether a small decode step is one launch"},
    {"overlap_steps", kBool, kUsed, "whether a step is scheduled while one runs"},
    {"load_format", kChoice, kUsed, "whether the weights are read; dummy on a GPU only",
     "auto dummy"},
    {"kv_cache_dtype", kChoice, kUsed, "the format of the KV cache", "auto float fp8 int8"},
    {"batch_invariant", kBool, kUsed, "the same bits alone and in any batch"},
    {"speculative_decoding", kText, kUsed,
     "off, auto, ngram, suffix, lookahead, lookahead=WINDOW,NGRAM,VERIFICATION, draft=FOLDER, "
     "eagle3=FOLDER or medusa=FOLDER"},
    {"max_draft_tokens", kRange, kUsed, "draft tokens of a sequence in one step", "1 127"},
    {"kv_cache_disk_path", kText, kUsed, "a file that keeps evicted blocks beyond a restart"},
    {"kv_cache_disk_bytes", kRange, kUsed, "the greatest size of that file", "0"},
    {"kv_events_endpoint", kText, kUsed, "ZeroMQ's address of the prefix cache's events"},
    {"kv_events_replay_endpoint", kText, kUsed, "the address at which they are sent again"},
    {"kv_events_topic", kText, kUsed, "their topic"},
    {"kv_events_form", kChoice, kUsed, "how an event is encoded", "maps lists"},
    {"sampling_defaults", kChoice, kUsed, "what applies where a request says nothing",
     "none generation_config"},
    {"skip_special_tokens", kBool, kUsed, "the text in which stop words are searched"},
    {"clean_up_tokenization_spaces", kBool, kUsed, "the text in which stop words are searched"},
    {"lora_adapters", kText, kUsed, "LoRA adapters: NAME=FOLDER, separated by commas"},
    {"lora_dir", kText, kUsed, "a folder of LoRA adapters, which is watched"},
    {"json_whitespace", kRange, kUsed, "the longest white space in JSON that a guide permits",
     kAnySize},
    {"stop_words_in_text", kBool, kUsed, "whether stop words are also searched in the text"},
};

bool IsNumber(std::string_view value, double above, double up_to, bool is_limited) {
  double number = 0.0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end) return false;
  return !is_limited || (number > above && number <= up_to);
}

// The bounds of kRange.
std::pair<int64_t, int64_t> BoundsOf(std::string_view choices) {
  const size_t space = std::min(choices.find(' '), choices.size());
  int64_t low = 0, high = std::numeric_limits<int64_t>::max();
  std::from_chars(choices.data(), choices.data() + space, low);
  if (space < choices.size()) {
    std::from_chars(choices.data() + space + 1, choices.data() + choices.size(), high);
  }
  return {low, high};
}

// Numbers of `lowest` or more, separated by commas. Empty if the text is not of this form.
std::vector<int32_t> NumbersIn(std::string_view value, int32_t lowest) {
  std::vector<int32_t> numbers;
  while (true) {
    const size_t comma = std::min(value.find(','), value.size());
    std::string_view part = value.substr(0, comma);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    int32_t number = -1;
    const char* const end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, number);
    if (error != std::errc() || stop != end || number < lowest) return {};
    numbers.push_back(number);
    if (comma == value.size()) return numbers;
    value.remove_prefix(comma + 1);
  }
}

bool AreDeviceIds(std::string_view value) {
  std::vector<int32_t> ids = NumbersIn(value, 0);
  std::sort(ids.begin(), ids.end());
  return !ids.empty() && std::adjacent_find(ids.begin(), ids.end()) == ids.end();
}

}  // namespace

std::span<const EngineParameter> EngineParameters() {
  return kParameters;
}

const EngineParameter* FindEngineParameter(std::string_view key) {
  const auto* const found =
      std::find_if(std::begin(kParameters), std::end(kParameters),
                   [&](const EngineParameter& parameter) { return key == parameter.key; });
  return found == std::end(kParameters) ? nullptr : found;
}

std::string SuggestEngineParameter(std::string_view key) {
  std::vector<std::string> keys;
  for (const EngineParameter& parameter : kParameters) keys.emplace_back(parameter.key);
  return DidYouMean(key, keys);
}

bool IsOneOf(std::string_view value, std::string_view choices) {
  while (!choices.empty()) {
    const size_t space = std::min(choices.find(' '), choices.size());
    if (value == choices.substr(0, space)) return true;
    choices.remove_prefix(std::min(space + 1, choices.size()));
  }
  return false;
}

bool IsValueOf(ParameterKind kind, std::string_view choices, std::string_view value) {
  int64_t integer = 0;
  const char* const end = value.data() + value.size();
  switch (kind) {
    case kText:
      return true;
    case kChoice:
      return IsOneOf(value, choices);
    case kBool:
      return IsOneOf(value, kOn) || IsOneOf(value, kOff);
    case kInt: {
      const auto [stop, error] = std::from_chars(value.data(), end, integer);
      return error == std::errc() && stop == end;
    }
    case kRange: {
      const auto [stop, error] = std::from_chars(value.data(), end, integer);
      const auto [low, high] = BoundsOf(choices);
      return error == std::errc() && stop == end && integer >= low && integer <= high;
    }
    case kSizes:
      return !NumbersIn(value, 1).empty();
    case kFloat:
      return IsNumber(value, 0.0, 0.0, false);
    case kFraction:
      return IsNumber(value, 0.0, 1.0, true);
    case kDeviceIds:
      return AreDeviceIds(value);
  }
  return false;
}

std::string ExpectedValue(ParameterKind kind, std::string_view choices) {
  switch (kind) {
    case kBool:
      return "true or false";
    case kInt:
      return "an integer";
    case kRange: {
      const auto [low, high] = BoundsOf(choices);
      const bool is_bounded = choices.find(' ') != std::string_view::npos;
      return is_bounded ? StrCat(low, " to ", high) : StrCat(low, " or more");
    }
    case kSizes:
      return "numbers of 1 or more, separated by commas";
    case kFloat:
      return "a number";
    case kFraction:
      return "more than 0, up to 1";
    case kDeviceIds:
      return "numbers of GPUs, each once, separated by commas";
    case kChoice:
      return StrCat("one of: ", choices);
    case kText:
      break;
  }
  return "a text";
}

Status CheckEngineParameter(std::string_view key, std::string_view value) {
  const EngineParameter* const parameter = FindEngineParameter(key);
  if (parameter == nullptr) {
    const std::string meant = SuggestEngineParameter(key);
    if (meant.empty()) return {};
    return InvalidArgError("parameter '", key, "' is unknown", meant);
  }
  if (parameter->kind == kDeviceIds && value.find(';') != std::string_view::npos) {
    return UnsupportedError("parameter '", key, "' is '", value,
                            "': groups of GPUs, with an engine for each instance, are not "
                            "supported; give each group a model of its own");
  }
  if (!IsValueOf(parameter->kind, parameter->choices, value)) {
    return InvalidArgError("parameter '", key, "' is '", value, "', expected ",
                           ExpectedValue(parameter->kind, parameter->choices));
  }
  if (parameter->rule != kRefused || IsOneOf(value, parameter->idle)) return {};
  return UnsupportedError("parameter '", key, "' is '", value, "': not supported (",
                          parameter->about, ")");
}

namespace {

// Parameters that need a drafter with weights, whose folder only speculative_decoding names.
struct DrafterParameter {
  std::string_view key;
  std::string_view value;   // with which it needs the drafter; empty: with any
  std::string_view method;  // of speculative_decoding
};
constexpr DrafterParameter kDrafterParameters[] = {{"decoding_mode", "medusa", "medusa"},
                                                   {"decoding_mode", "eagle", "eagle3"},
                                                   {"medusa_choices", "", "medusa"},
                                                   {"eagle_choices", "", "eagle3"}};

std::optional<ParameterConflict> FindMissingDrafter(
    const std::function<std::string(std::string_view)>& value_of) {
  const std::string method = value_of("speculative_decoding");
  for (const DrafterParameter& parameter : kDrafterParameters) {
    const std::string value = value_of(parameter.key);
    if (value.empty() || (!parameter.value.empty() && value != parameter.value)) continue;
    if (method.starts_with(StrCat(parameter.method, "="))) continue;
    return ParameterConflict{
        std::string(parameter.key),
        InvalidArgError("parameter '", parameter.key, "' is '", value,
                        "' and 'speculative_decoding' is '", method.empty() ? "off" : method,
                        "', expected ", parameter.method, "=FOLDER, the folder of the heads")};
  }
  const std::string drafts = value_of("max_draft_tokens");
  constexpr int64_t kMostInChain = 64;
  int64_t most = 0;
  std::from_chars(drafts.data(), drafts.data() + drafts.size(), most);
  if (most > kMostInChain && !method.starts_with("eagle3=") && !method.starts_with("medusa=")) {
    return ParameterConflict{
        "max_draft_tokens",
        InvalidArgError("parameter 'max_draft_tokens' is '", drafts,
                        "' and 'speculative_decoding' is '", method.empty() ? "off" : method,
                        "', which drafts chains: expected 1 to ", kMostInChain)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<ParameterConflict> FindParameterConflict(
    const std::function<std::string(std::string_view)>& value_of) {
  if (auto conflict = FindMissingDrafter(value_of); conflict.has_value()) return conflict;
  const std::string path = value_of("kv_cache_disk_path"), bytes = value_of("kv_cache_disk_bytes");
  if (path.empty() != (bytes.empty() || bytes == "0")) {
    const std::string size = bytes.empty() ? "0" : bytes;
    return ParameterConflict{
        path.empty() ? "kv_cache_disk_bytes" : "kv_cache_disk_path",
        InvalidArgError("parameter 'kv_cache_disk_path' is '", path,
                        "' and 'kv_cache_disk_bytes' is ", size, ", expected both or none")};
  }
  const std::string endpoint = value_of("kv_events_endpoint");
  if (!endpoint.empty() && !IsOneOf(value_of("enable_kv_cache_reuse"), kOn)) {
    return ParameterConflict{
        "kv_events_endpoint",
        InvalidArgError("parameter 'kv_events_endpoint' is '", endpoint,
                        "' and 'enable_kv_cache_reuse' is false, expected true")};
  }
  for (const std::string_view key :
       {"kv_events_replay_endpoint", "kv_events_topic", "kv_events_form"}) {
    const std::string value = value_of(key);
    if (value.empty() || !endpoint.empty()) continue;
    return ParameterConflict{std::string(key),
                             InvalidArgError("parameter '", key, "' is '", value,
                                             "' and 'kv_events_endpoint' is '', expected both")};
  }
  return std::nullopt;
}

std::string NoteOnEngineParameter(std::string_view key, std::string_view value, bool is_on_gpu) {
  const EngineParameter* const parameter = FindEngineParameter(key);
  if (parameter == nullptr) {
    return StrCat("parameter '", key, "' is not known to this backend and has no effect");
  }
  if (IsOneOf(value, parameter->idle)) return "";
  const auto line = [&](std::string_view what) {
    return StrCat("parameter '", key, "' (", value, ") ", what, " (", parameter->about, ")");
  };
  if (parameter->rule == kNoted) return line(kTunesNothing);
  if (parameter->rule == kUsedOnGpu && !is_on_gpu)
    return line("has no effect: this backend runs on the CPU");
  if (parameter->rule == kUsedOnCpu && is_on_gpu)
    return line("has no effect: this backend runs on the GPU");
  if (key == "gpt_model_type" && IsOneOf(value, "V1 v1")) return line(kTunesNothing);
  return "";
}

}  // namespace nereid::llm
