// The table of tensors. To add a tensor, add a line.
#include "repo_templates/tool/llm_tables.h"

namespace nereid::repo {
namespace {

constexpr LlmTensor kPreprocessingInputs[] = {
    {"QUERY", "STRING", "[1]", "[-1]", false},
    {"MESSAGES", "STRING", "[1]", "", false},
    {"TOOLS", "STRING", "[1]", "", false},
    {"CHAT_TEMPLATE_KWARGS", "STRING", "[1]", "", false},
    {"PROMPT_TOKEN_IDS", "INT32", "[-1]", "", false},
    {"REQUEST_OUTPUT_LEN", "INT32", "[1]", "[-1]", true},
    {"BAD_WORDS_DICT", "STRING", "[-1]", "", false},
    {"STOP_WORDS_DICT", "STRING", "[-1]", "", false},
    {"EMBEDDING_BIAS_WORDS", "STRING", "[-1]", "", false},
    {"EMBEDDING_BIAS_WEIGHTS", "FP32", "[-1]", "", false},
    {"END_ID", "INT32", "[1]", "[-1]", false},
    {"PAD_ID", "INT32", "[1]", "[-1]", false},
    {"DECODER_QUERY", "STRING", "[1]", "", false},
    {"PROMPT_TABLE_EXTRA_ID", "UINT64", "[1]", "", false},
    {"IMAGE_BYTES", "UINT8", "[-1,-1,-1,-1]", "", false},
    {"IMAGE_URL", "STRING", "[1]", "", false},
    {"VIDEO_BYTES", "UINT8", "[-1,-1,-1,-1]", "", false},
    {"IMAGES", "STRING", "[-1]", "", false},
};

constexpr LlmTensor kPreprocessingOutputs[] = {
    {"INPUT_ID", "INT32", "[-1]", "", false},
    {"REQUEST_INPUT_LEN", "INT32", "[1]", "", false},
    {"BAD_WORDS_IDS", "INT32", "[2,-1]", "", false},
    {"STOP_WORDS_IDS", "INT32", "[2,-1]", "", false},
    {"EMBEDDING_BIAS", "FP32", "[-1]", "", false},
    {"REQUEST_OUTPUT_LEN", "INT32", "[-1]", "", false},
    {"OUT_END_ID", "INT32", "[1]", "[-1]", false},
    {"OUT_PAD_ID", "INT32", "[1]", "[-1]", false},
    {"DECODER_INPUT_ID", "INT32", "[-1]", "", false},
    {"REQUEST_DECODER_INPUT_LEN", "INT32", "[1]", "", false},
    {"PROMPT_END", "STRING", "[1]", "", false},
    {"OUT_PROMPT_TABLE_EXTRA_IDS", "UINT64", "[-1]", "", false},
    {"PIXEL_VALUES", "FP16", "[-1,-1,-1,-1]", "", false},
    {"ASPECT_RATIO_IDS", "INT64", "[-1]", "", false},
    {"ASPECT_RATIO_MASK", "INT64", "[-1,-1]", "", false},
    {"CROSS_ATTENTION_MASK", "INT64", "[-1,-1,-1]", "", false},
    {"IMAGE_SIZES", "INT64", "[2]", "", false},
    {"IS_VIDEO_INPUT", "BOOL", "[1]", "", false},
    {"ATTENTION_MASK", "INT64", "[-1]", "", false},
    {"IMAGE_GRID_THW", "INT64", "[3]", "", false},
    {"VISION_INPUT_ID", "INT32", "[-1]", "", false},
};

constexpr LlmTensor kEngineInputs[] = {
    {"input_ids", "INT32", "[-1]", "", false},
    {"input_lengths", "INT32", "[1]", "", true},
    {"request_output_len", "INT32", "[1]", "", true},
    {"draft_input_ids", "INT32", "[-1]", "", false},
    {"draft_logits", "*", "[-1,-1]", "", false},
    {"end_id", "INT32", "[1]", "", false},
    {"pad_id", "INT32", "[1]", "", false},
    {"stop_words_list", "INT32", "[2,-1]", "", false},
    {"stop_words", "STRING", "[-1]", "", false},
    {"stop_token_ids", "INT32", "[-1]", "", false},
    {"ignore_eos", "BOOL", "[1]", "", false},
    {"include_stop_str_in_output", "BOOL", "[1]", "", false},
    {"skip_special_tokens", "BOOL", "[1]", "", false},
    {"bad_words_list", "INT32", "[2,-1]", "", false},
    {"embedding_bias", "FP32", "[-1]", "", false},
    {"beam_width", "INT32", "[1]", "", false},
    {"temperature", "FP32", "[1]", "", false},
    {"runtime_top_k", "INT32", "[1]", "", false},
    {"runtime_top_p", "FP32", "[1]", "", false},
    {"min_p", "FP32", "[1]", "", false},
    {"runtime_top_k_min", "FP32", "[1]", "", false},  // a misspelling in published templates
    {"len_penalty", "FP32", "[1]", "", false},
    {"repetition_penalty", "FP32", "[1]", "", false},
    {"min_length", "INT32", "[1]", "", false},
    {"presence_penalty", "FP32", "[1]", "", false},
    {"frequency_penalty", "FP32", "[1]", "", false},
    {"random_seed", "UINT64", "[1]", "", false},
    {"logit_bias_ids", "INT32", "[-1]", "", false},
    {"logit_bias_values", "FP32", "[-1]", "", false},
    {"allowed_token_ids", "INT32", "[-1]", "", false},
    {"num_top_logprobs", "INT32", "[1]", "", false},
    {"return_token_ids", "BOOL", "[1]", "", false},
    {"priority", "INT32", "[1]", "", false},
    {"cache_salt", "STRING", "[1]", "", false},
    {"return_log_probs", "BOOL", "[1]", "", false},
    {"return_context_logits", "BOOL", "[1]", "", false},
    {"return_generation_logits", "BOOL", "[1]", "", false},
    {"stop", "BOOL", "[1]", "", false},
    {"streaming", "BOOL", "[1]", "", false},
    {"prompt_embedding_table", "FP16", "[-1,-1]", "", false},
    {"prompt_vocab_size", "INT32", "[1]", "", false},
    {"lora_task_id", "UINT64", "[1]", "", false},
    {"lora_weights", "FP16", "[-1,-1]", "", false},
    {"lora_config", "INT32", "[-1,3]", "", false},
    {"decoder_input_ids", "INT32", "[-1]", "", false},
    {"decoder_input_lengths", "INT32", "[1]", "", false},
    {"draft_acceptance_threshold", "FP32", "[1]", "", false},
    {"runtime_top_p_min", "FP32", "[1]", "", false},
    {"runtime_top_p_decay", "FP32", "[1]", "", false},
    {"runtime_top_p_reset_ids", "INT32", "[1]", "", false},
    {"early_stopping", "BOOL", "[1]", "", false},
    {"beam_search_diversity_rate", "FP32", "[1]", "", false},
    {"prompt_table_extra_ids", "UINT64", "[-1]", "", false},
    {"encoder_input_features", "*", "[-1,-1]", "", false},
    {"encoder_output_lengths", "INT32", "[1]", "", false},
    {"num_return_sequences", "INT32", "[1]", "", false},
    {"return_kv_cache_reuse_stats", "BOOL", "[1]", "", false},
    {"exclude_input_in_output", "BOOL", "[1]", "", false},
    {"cross_attention_mask", "BOOL", "[-1,-1]", "", false},
    {"context_phase_params", "UINT8", "[-1]", "", false},
    {"skip_cross_attn_blocks", "BOOL", "[1]", "", false},
    {"retention_token_range_starts", "INT32", "[-1]", "", false},
    {"retention_token_range_ends", "INT32", "[-1]", "", false},
    {"retention_token_range_priorities", "INT32", "[-1]", "", false},
    {"retention_token_range_durations_ms", "INT32", "[-1]", "", false},
    {"retention_decode_priority", "INT32", "[1]", "", false},
    {"retention_decode_duration_ms", "INT32", "[1]", "", false},
    {"min_tokens", "INT32", "[1]", "", false},
    {"seed", "UINT64", "[1]", "", false},
    {"return_perf_metrics", "BOOL", "[1]", "", false},
    {"return_num_input_tokens", "BOOL", "[1]", "", false},
    {"return_num_output_tokens", "BOOL", "[1]", "", false},
    {"mrope_rotary_cos_sin", "FP32", "[-1]", "", false},
    {"mrope_position_deltas", "INT64", "[1]", "", false},
    {"guided_decoding_guide_type", "STRING", "[1]", "", false},
    {"guided_decoding_guide", "STRING", "[1]", "", false},
    {"lookahead_window_size", "INT32", "[1]", "", false},
    {"lookahead_ngram_size", "INT32", "[1]", "", false},
    {"lookahead_verification_set_size", "INT32", "[1]", "", false},
};

constexpr LlmTensor kEngineOutputs[] = {
    {"output_ids", "INT32", "[-1,-1]", "", false},
    {"sequence_length", "INT32", "[-1]", "", false},
    {"cum_log_probs", "FP32", "[-1]", "", false},
    {"output_log_probs", "FP32", "[-1,-1]", "", false},
    {"context_logits", "*", "[-1,-1]", "", false},
    {"generation_logits", "*", "[-1,-1,-1]", "", false},
    {"batch_index", "INT32", "[1]", "", false},
    {"sequence_index", "INT32", "[1]", "", false},
    {"context_phase_params", "UINT8", "[-1]", "", false},
    {"kv_cache_alloc_new_blocks", "INT32", "[1]", "", false},
    {"kv_cache_reused_blocks", "INT32", "[1]", "", false},
    {"kv_cache_alloc_total_blocks", "INT32", "[1]", "", false},
    {"arrival_time_ns", "INT64", "[1]", "", false},
    {"first_scheduled_time_ns", "INT64", "[1]", "", false},
    {"first_token_time_ns", "INT64", "[1]", "", false},
    {"last_token_time_ns", "INT64", "[1]", "", false},
    {"acceptance_rate", "FP32", "[1]", "", false},
    {"total_accepted_draft_tokens", "INT32", "[1]", "", false},
    {"total_draft_tokens", "INT32", "[1]", "", false},
    {"num_input_tokens", "INT32", "[1]", "", false},
    {"num_output_tokens", "INT32", "[1]", "", false},
    {"prior_ids", "INT32", "[-1]", "", false},
    {"finish_reason", "STRING", "[1]", "", false},
    {"stream_position", "UINT64", "[2]", "", false},
    {"num_cached_tokens", "INT32", "[1]", "", false},
    {"stop_reason", "STRING", "[1]", "", false},
    {"skip_special_tokens", "BOOL", "[1]", "", false},
    {"top_logprob_ids", "INT32", "[-1,-1]", "", false},
    {"top_logprobs", "FP32", "[-1,-1]", "", false},
    {"output_token_ids", "INT32", "[-1]", "", false},
    {"prompt_ids", "INT32", "[-1]", "", false},
};

constexpr LlmTensor kPostprocessingInputs[] = {
    {"TOKENS_BATCH", "INT32", "[-1,-1]", "", true},
    {"SEQUENCE_LENGTH", "INT32", "[-1]", "", true},
    {"CUM_LOG_PROBS", "FP32", "[-1]", "", false},
    {"OUTPUT_LOG_PROBS", "FP32", "[-1,-1]", "", false},
    {"CONTEXT_LOGITS", "FP32", "[-1,-1]", "", false},
    {"GENERATION_LOGITS", "FP32", "[-1,-1,-1]", "", false},
    {"BATCH_INDEX", "INT32", "[1]", "", false},
    {"PRIOR_IDS", "INT32", "[-1]", "", false},
    {"FINISH_REASON", "STRING", "[1]", "", false},
    {"SKIP_SPECIAL_TOKENS", "BOOL", "[1]", "", false},
    {"TOP_LOGPROB_IDS", "INT32", "[-1,-1]", "", false},
    {"PARSE_OUTPUT", "BOOL", "[1]", "", false},
    {"TOOLS", "STRING", "[1]", "", false},
    {"PROMPT_END", "STRING", "[1]", "", false},
    {"STREAM_POSITION", "UINT64", "[2]", "", false},
};

constexpr LlmTensor kPostprocessingOutputs[] = {
    {"OUTPUT", "STRING", "[-1]", "", false},
    {"REASONING", "STRING", "[-1]", "", false},
    {"TOOL_CALLS", "STRING", "[-1]", "", false},
    {"NUM_REASONING_TOKENS", "INT32", "[-1]", "", false},
    {"TOKEN_TEXTS", "STRING", "[-1]", "", false},
    {"TOP_TOKEN_TEXTS", "STRING", "[-1,-1]", "", false},
    {"OUT_CUM_LOG_PROBS", "FP32", "[-1]", "", false},
    {"OUT_OUTPUT_LOG_PROBS", "FP32", "[-1,-1]", "", false},
    {"OUT_CONTEXT_LOGITS", "FP32", "[-1,-1]", "", false},
    {"OUT_GENERATION_LOGITS", "FP32", "[-1,-1,-1]", "", false},
    {"OUT_BATCH_INDEX", "INT32", "[1]", "", false},
};

}  // namespace

std::span<const LlmTensor> LlmInputs(LlmRole role) {
  switch (role) {
    case LlmRole::kPreprocessing:
      return kPreprocessingInputs;
    case LlmRole::kEngine:
      return kEngineInputs;
    case LlmRole::kPostprocessing:
      return kPostprocessingInputs;
    case LlmRole::kNone:
      break;
  }
  return {};
}

std::span<const LlmTensor> LlmOutputs(LlmRole role) {
  switch (role) {
    case LlmRole::kPreprocessing:
      return kPreprocessingOutputs;
    case LlmRole::kEngine:
      return kEngineOutputs;
    case LlmRole::kPostprocessing:
      return kPostprocessingOutputs;
    case LlmRole::kNone:
      break;
  }
  return {};
}

const LlmTensor* FindLlmTensor(std::span<const LlmTensor> tensors, std::string_view name) {
  for (const LlmTensor& tensor : tensors) {
    if (name == tensor.name) return &tensor;
  }
  return nullptr;
}

std::vector<std::string> NamesOf(std::span<const LlmTensor> tensors) {
  std::vector<std::string> names;
  for (const LlmTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

}  // namespace nereid::repo
