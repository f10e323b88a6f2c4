#include "repo_templates/tool/llm_tables.h"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace nereid::repo {
namespace {

using Kind = LlmParameter::Kind;

constexpr LlmParameter kEngineParameters[] = {
    {"gpt_model_type", Kind::kChoice, "inflight_fused_batching inflight_batching V1 v1"},
    {"gpt_model_path"},
    {"encoder_model_path"},
    {"max_beam_width", Kind::kInt},
    {"max_tokens_in_paged_kv_cache", Kind::kInt},
    {"max_attention_window_size"},
    {"sink_token_length", Kind::kInt},
    {"batch_scheduler_policy", Kind::kChoice, "guaranteed_no_evict max_utilization"},
    {"kv_cache_free_gpu_mem_fraction", Kind::kFloat},
    {"cross_kv_cache_fraction", Kind::kFloat},
    {"kv_cache_host_memory_bytes", Kind::kInt},
    {"kv_cache_onboard_blocks", Kind::kBool},
    {"enable_kv_cache_reuse", Kind::kBool},
    {"enable_trt_overlap", Kind::kBool},
    {"exclude_input_in_output", Kind::kBool},
    {"cancellation_check_period_ms", Kind::kInt},
    {"stats_check_period_ms", Kind::kInt},
    {"recv_poll_period_ms", Kind::kInt},
    {"iter_stats_max_iterations", Kind::kInt},
    {"request_stats_max_iterations", Kind::kInt},
    {"normalize_log_probs", Kind::kBool},
    {"enable_chunked_context", Kind::kBool},
    {"gpu_device_ids"},
    {"participant_ids"},
    {"num_nodes", Kind::kInt},
    {"lora_cache_optimal_adapter_size", Kind::kInt},
    {"lora_cache_max_adapter_size", Kind::kInt},
    {"lora_cache_gpu_memory_fraction", Kind::kFloat},
    {"lora_cache_host_memory_bytes", Kind::kInt},
    {"lora_prefetch_dir"},
    {"decoding_mode", Kind::kChoice,
     "auto top_k top_p top_k_top_p beam_search medusa redrafter lookahead eagle"},
    {"medusa_choices"},
    {"eagle_choices"},
    {"lookahead_window_size", Kind::kInt},
    {"lookahead_ngram_size", Kind::kInt},
    {"lookahead_verification_set_size", Kind::kInt},
    {"gpu_weights_percent", Kind::kFloat},
    {"enable_context_fmha_fp32_acc", Kind::kBool},
    {"multi_block_mode", Kind::kBool},
    {"cuda_graph_mode", Kind::kBool},
    {"cuda_graph_cache_size", Kind::kInt},
    {"speculative_decoding_fast_logits", Kind::kBool},
    {"executor_worker_path"},
    {"worker_path"},
    {"FORCE_CPU_ONLY_INPUT_TENSORS"},
    {"max_num_sequences", Kind::kInt},  // this one and the next fifteen exist only in this host
    {"max_num_tokens", Kind::kInt},
    {"mixed_step_tokens", Kind::kInt},
    {"profile_steps", Kind::kInt},
    {"max_seq_len", Kind::kInt},
    {"cpu_threads", Kind::kInt},
    {"overlap_steps", Kind::kBool},
    {"fused_decode", Kind::kBool},
    {"load_format", Kind::kChoice, "auto dummy"},
    {"kv_cache_dtype", Kind::kChoice, "auto float fp8 int8"},
    {"batch_invariant", Kind::kBool},
    {"json_whitespace", Kind::kInt},
    {"sampling_defaults", Kind::kChoice, "none generation_config"},
    {"skip_special_tokens", Kind::kBool},
    {"clean_up_tokenization_spaces", Kind::kBool},
    {"stop_words_in_text", Kind::kBool},
    {"tokenizer_dir"},
    {"guided_decoding_backend"},
    {"xgrammar_tokenizer_info_path"},
};

constexpr LlmParameter kTokenizerParameters[] = {
    {"mode", Kind::kChoice, "preprocessing postprocessing"},
    {"tokenizer_dir"},
    {"tokenizer_type"},
    {"add_special_tokens", Kind::kBool},
    {"skip_special_tokens", Kind::kBool},
    {"clean_up_tokenization_spaces", Kind::kBool},
    {"chat_parser"},
    {"invalid_utf8", Kind::kChoice, "replace refuse"},
    {"truncation", Kind::kChoice, "file none"},
    {"engine_dir"},
    {"gpt_model_path"},
    {"visual_model_path"},
    {"multimodal_model_path"},
    {"hf_model_path"},
    {"max_num_images", Kind::kInt},
};

bool IsOneOf(std::string_view value, std::string_view choices) {
  while (!choices.empty()) {
    const size_t space = std::min(choices.find(' '), choices.size());
    if (value == choices.substr(0, space)) return true;
    choices.remove_prefix(std::min(space + 1, choices.size()));
  }
  return false;
}

}  // namespace

std::span<const LlmParameter> LlmParameters(LlmRole role) {
  if (role == LlmRole::kEngine) return kEngineParameters;
  return role == LlmRole::kNone ? std::span<const LlmParameter>() : kTokenizerParameters;
}

bool IsReadable(const LlmParameter& parameter, std::string_view value) {
  const std::string text(value);
  char* end = nullptr;
  switch (parameter.kind) {
    case Kind::kText:
      return true;
    case Kind::kChoice:
      return IsOneOf(value, parameter.choices);
    case Kind::kBool:
      return IsOneOf(value, "true True TRUE 1 false False FALSE 0 t f y n yes no");
    case Kind::kInt:
      (void)std::strtoll(text.c_str(), &end, 10);
      break;
    case Kind::kFloat:
      (void)std::strtod(text.c_str(), &end);
      break;
  }
  return end != text.c_str() && *end == '\0';
}

std::string ExpectedValue(const LlmParameter& parameter) {
  switch (parameter.kind) {
    case Kind::kBool:
      return "true or false";
    case Kind::kInt:
      return "an integer";
    case Kind::kFloat:
      return "a number";
    case Kind::kChoice:
      return std::string("one of: ") + parameter.choices;
    case Kind::kText:
      break;
  }
  return "a text";
}

}  // namespace nereid::repo
