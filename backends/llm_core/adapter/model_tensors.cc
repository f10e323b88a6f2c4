// The tables of inputs and outputs, in the order of the published configurations of the model.
#include "backends/llm_core/adapter/model_tensors.h"

namespace nereid::llm {

using enum InputRule;

const std::vector<InputTensor>& InputTensors() {
  constexpr auto kInt = DataType::kInt32;
  constexpr auto kFloat = DataType::kFp32;
  constexpr auto kBool = DataType::kBool;
  constexpr auto kUint64 = DataType::kUint64;
  static const std::vector<InputTensor> inputs = {
      {"input_ids", kInt, {-1}, kUsed, false},
      {"input_lengths", kInt, {1}, kUsed, false},
      {"request_output_len", kInt, {1}, kUsed, false},
      {"end_id", kInt, {1}, kUsed},
      {"pad_id", kInt, {1}, kIgnored},
      {"stop_words_list", kInt, {2, -1}, kUsed},
      {"stop_words", DataType::kBytes, {-1}, kUsed},  // extension: stop words as text
      {"bad_words_list", kInt, {2, -1}, kUsed},
      {"embedding_bias", kFloat, {-1}, kUsed},
      {"beam_width", kInt, {1}, kUsed},
      {"num_return_sequences", kInt, {1}, kUsed},
      {"temperature", kFloat, {1}, kUsed},
      {"runtime_top_k", kInt, {1}, kUsed},
      {"runtime_top_p", kFloat, {1}, kUsed},
      {"runtime_top_p_min", kFloat, {1}, kUsed},
      {"runtime_top_k_min", kFloat, {1}, kUsed},  // a published misspelling of the one above
      {"runtime_top_p_decay", kFloat, {1}, kUsed},
      {"runtime_top_p_reset_ids", kInt, {1}, kUsed},
      {"min_p", kFloat, {1}, kUsed},
      {"len_penalty", kFloat, {1}, kUsed},
      {"early_stopping", kBool, {1}, kUsed},
      {"beam_search_diversity_rate", kFloat, {1}, kUsed},
      {"repetition_penalty", kFloat, {1}, kUsed},
      {"no_repeat_ngram_size", kInt, {1}, kUsed},
      {"min_length", kInt, {1}, kUsed},
      {"min_tokens", kInt, {1}, kUsed},
      {"presence_penalty", kFloat, {1}, kUsed},
      {"frequency_penalty", kFloat, {1}, kUsed},
      {"random_seed", kUint64, {1}, kUsed},
      {"seed", kUint64, {1}, kUsed},
      {"return_log_probs", kBool, {1}, kUsed},
      {"stop", kBool, {1}, kUsed},
      {"streaming", kBool, {1}, kUsed},
      {"exclude_input_in_output", kBool, {1}, kUsed},
      // The output is set whenever it is requested.
      {"return_num_input_tokens", kBool, {1}, kIgnored},
      {"return_num_output_tokens", kBool, {1}, kIgnored},
      {"decoder_input_ids", kInt, {-1}, kIgnored},  // for encoder-decoder models
      {"decoder_input_lengths", kInt, {1}, kIgnored},
      {"prompt_table_extra_ids", kUint64, {-1}, kIgnored},
      {"prompt_vocab_size", kInt, {1}, kIgnored},  // no effect without prompt_embedding_table
      {"draft_acceptance_threshold", kFloat, {1}, kIgnored},
      {"return_context_logits", kBool, {1}, kUsed},
      {"return_generation_logits", kBool, {1}, kUsed},
      {"return_prompt_log_probs", kBool, {1}, kUsed},
      {"return_kv_cache_reuse_stats", kBool, {1}, kUsed},
      {"return_perf_metrics", kBool, {1}, kUsed},
      {"priority", kInt, {1}, kUsed},
      {"cache_salt", DataType::kBytes, {1}, kUsed},
      // Extensions for clients of OpenAI's API.
      {"stop_token_ids", kInt, {-1}, kUsed},
      {"ignore_eos", kBool, {1}, kUsed},
      {"include_stop_str_in_output", kBool, {1}, kUsed},
      {"skip_special_tokens", kBool, {1}, kUsed},
      {"logit_bias_ids", kInt, {-1}, kUsed},
      {"logit_bias_values", kFloat, {-1}, kUsed},
      {"allowed_token_ids", kInt, {-1}, kUsed},
      {"num_top_logprobs", kInt, {1}, kUsed},
      {"return_token_ids", kBool, {1}, kUsed},
      {"draft_input_ids", kInt, {-1}, kRefuseNonEmpty},
      {"draft_logits", kFloat, {-1, -1}, kRefuseNonEmpty},
      {"prompt_embedding_table", DataType::kFp16, {-1, -1}, kRefuseNonEmpty},
      {"lora_task_id", kUint64, {1}, kRefuseNonEmpty},
      {"lora_weights", DataType::kFp16, {-1, -1}, kRefuseNonEmpty},
      {"lora_config", kInt, {-1, 3}, kRefuseNonEmpty},
      {"encoder_input_features", DataType::kFp16, {-1, -1}, kRefuseNonEmpty},
      {"encoder_output_lengths", kInt, {1}, kRefuseNonEmpty},
      {"cross_attention_mask", kBool, {-1, -1}, kRefuseNonEmpty},
      {"skip_cross_attn_blocks", kBool, {1}, kRefuseTrue},
      {"context_phase_params", DataType::kUint8, {-1}, kRefuseNonEmpty},
      {"retention_token_range_starts", kInt, {-1}, kRefuseNonEmpty},
      {"retention_token_range_ends", kInt, {-1}, kRefuseNonEmpty},
      {"retention_token_range_priorities", kInt, {-1}, kRefuseNonEmpty},
      {"retention_token_range_durations_ms", kInt, {-1}, kRefuseNonEmpty},
      {"retention_decode_priority", kInt, {1}, kRefuseNonEmpty},
      {"retention_decode_duration_ms", kInt, {1}, kRefuseNonEmpty},
      {"mrope_rotary_cos_sin", kFloat, {-1}, kRefuseNonEmpty},
      {"mrope_position_deltas", DataType::kInt64, {1}, kRefuseNonEmpty},
      {"guided_decoding_guide_type", DataType::kBytes, {1}, kUsed},
      {"guided_decoding_guide", DataType::kBytes, {1}, kUsed},
      {"lookahead_window_size", kInt, {1}, kRefuseNonEmpty},
      {"lookahead_ngram_size", kInt, {1}, kRefuseNonEmpty},
      {"lookahead_verification_set_size", kInt, {1}, kRefuseNonEmpty},
  };
  return inputs;
}

const std::vector<OutputTensor>& OutputTensors() {
  static const std::vector<OutputTensor> outputs = {
      {"output_ids", DataType::kInt32, {-1, -1}},
      {"sequence_length", DataType::kInt32, {-1}},
      {"cum_log_probs", DataType::kFp32, {-1}},
      {"output_log_probs", DataType::kFp32, {-1, -1}},
      {"batch_index", DataType::kInt32, {1}},
      {"sequence_index", DataType::kInt32, {1}},
      {"num_input_tokens", DataType::kInt32, {1}},
      {"num_output_tokens", DataType::kInt32, {1}},
      {"prior_ids", DataType::kInt32, {-1}},
      {"finish_reason", DataType::kBytes, {1}},
      {"stream_position", DataType::kUint64, {2}},
      {"num_cached_tokens", DataType::kInt32, {1}},
      {"stop_reason", DataType::kBytes, {1}},
      {"skip_special_tokens", DataType::kBool, {1}},  // as in the request, for postprocessing
      {"prompt_ids", DataType::kInt32, {-1}},
      {"output_token_ids", DataType::kInt32, {-1}},
      {"top_logprob_ids", DataType::kInt32, {-1, -1}},
      {"top_logprobs", DataType::kFp32, {-1, -1}},
      {"context_logits", DataType::kFp32, {-1, -1}},
      {"generation_logits", DataType::kFp32, {-1, -1, -1}},
      {"prompt_log_probs", DataType::kFp32, {-1}},
      {"kv_cache_alloc_new_blocks", DataType::kInt32, {1}},
      {"kv_cache_reused_blocks", DataType::kInt32, {1}},
      {"kv_cache_alloc_total_blocks", DataType::kInt32, {1}},
      {"arrival_time_ns", DataType::kInt64, {1}},
      {"first_scheduled_time_ns", DataType::kInt64, {1}},
      {"first_token_time_ns", DataType::kInt64, {1}},
      {"last_token_time_ns", DataType::kInt64, {1}},
      {"acceptance_rate", DataType::kFp32, {1}},
      {"total_accepted_draft_tokens", DataType::kInt32, {1}},
      {"total_draft_tokens", DataType::kInt32, {1}},
  };
  return outputs;
}

Status CompleteTensors(ConfigDraft& draft) {
  const bool lacks_inputs = draft.json()["input"].elements().empty();
  const bool lacks_outputs = draft.json()["output"].elements().empty();
  for (const InputTensor& input : InputTensors()) {
    if (!lacks_inputs) break;
    NEREID_RETURN_IF_ERROR(
        draft.AddInput({std::string(input.name), input.datatype, input.dims, input.is_optional}));
  }
  for (const OutputTensor& output : OutputTensors()) {
    if (!lacks_outputs) break;
    NEREID_RETURN_IF_ERROR(draft.AddOutput({output.name, output.datatype, output.dims, false}));
  }
  return {};
}

}  // namespace nereid::llm
