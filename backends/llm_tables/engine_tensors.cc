// The rows of the tables, in the order in which a completed configuration declares the tensors.
#include "backends/llm_tables/engine_tensors.h"

#include <algorithm>

#include "base/closest_name.h"

namespace nereid::llm {
namespace {

template <typename Row>
const Row* Find(const std::vector<Row>& rows, std::string_view name) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

template <typename Row>
std::string Suggest(const std::vector<Row>& rows, std::string_view name) {
  std::vector<std::string> names;
  for (const Row& row : rows) names.emplace_back(row.name);
  return DidYouMean(name, names);
}

}  // namespace

const char* const kTunesNothing =
    "tunes a mechanism that Nereid does not have; the answers stay the same";

const std::vector<EngineInput>& EngineInputs() {
  using enum InputRule;
  constexpr auto kInt = DataType::kInt32;
  constexpr auto kFloat = DataType::kFp32;
  constexpr auto kBool = DataType::kBool;
  constexpr auto kUint64 = DataType::kUint64;
  static const std::vector<EngineInput> inputs = {
      {"input_ids", kInt, {-1}, kUsed, "the prompt", false},
      {"input_lengths", kInt, {1}, kUsed, "the number of ids in input_ids that count", false},
      {"request_output_len", kInt, {1}, kUsed, "the maximum number of output tokens", false},
      {"end_id", kInt, {1}, kUsed, "the id that ends the output; -1: none"},
      {"pad_id", kInt, {1}, kNoted, "padding: the engine has none"},
      {"stop_words_list", kInt, {2, -1}, kUsed, "stop words as ids"},
      {"stop_words", DataType::kBytes, {-1}, kUsed, "stop words as text (extension)"},
      {"bad_words_list", kInt, {2, -1}, kUsed, "words as ids that must not be generated"},
      {"embedding_bias", kFloat, {-1}, kUsed, "added to the logits"},
      {"beam_width", kInt, {1}, kUsed, "beam search"},
      {"num_return_sequences", kInt, {1}, kUsed, "the number of outputs"},
      {"temperature",
       kFloat,
       {1},
       kUsed,
       "sampling; alone it leaves the output greedy: that takes top-k, top-p or min-p, too"},
      {"runtime_top_k", kInt, {1}, kUsed, "sampling"},
      {"runtime_top_p", kFloat, {1}, kUsed, "sampling"},
      {"runtime_top_p_min", kFloat, {1}, kUsed, "the minimum of a decaying top-p"},
      {"runtime_top_k_min", kFloat, {1}, kUsed, "a published misspelling of runtime_top_p_min"},
      {"runtime_top_p_decay", kFloat, {1}, kUsed, "the factor on top-p for each token"},
      {"runtime_top_p_reset_ids", kInt, {1}, kUsed, "the token that restores top-p"},
      {"min_p", kFloat, {1}, kUsed, "sampling (extension)"},
      {"len_penalty", kFloat, {1}, kUsed, "beam search: exponent of the length"},
      {"early_stopping", kBool, {1}, kUsed, "beam search"},
      {"beam_search_diversity_rate", kFloat, {1}, kUsed, "beam search"},
      {"repetition_penalty", kFloat, {1}, kUsed, "penalty of repeated tokens"},
      {"no_repeat_ngram_size", kInt, {1}, kUsed, "no n-gram of this size occurs twice"},
      {"min_length", kInt, {1}, kUsed, "the minimum number of output tokens"},
      {"min_tokens", kInt, {1}, kUsed, "a newer name of min_length"},
      {"presence_penalty", kFloat, {1}, kUsed, "penalty of repeated tokens"},
      {"frequency_penalty", kFloat, {1}, kUsed, "penalty of repeated tokens"},
      {"prompt_ignore_length",
       kInt,
       {1},
       kUsed,
       "the first tokens of the prompt that the penalties do not count"},
      {"random_seed", kUint64, {1}, kUsed, "the seed of sampling; 0 if there is none"},
      {"seed", kUint64, {1}, kUsed, "a newer name of random_seed"},
      {"return_log_probs", kBool, {1}, kUsed, "fills cum_log_probs and output_log_probs"},
      {"stop", kBool, {1}, kUsed, "ends the requests with this request's id"},
      {"streaming", kBool, {1}, kUsed, "a response for each step"},
      {"exclude_input_in_output", kBool, {1}, kUsed, "whether output_ids begins with the prompt"},
      {"return_num_input_tokens", kBool, {1}, kUsed, "sends num_input_tokens"},
      {"return_num_output_tokens", kBool, {1}, kUsed, "sends num_output_tokens"},
      {"return_context_logits", kBool, {1}, kUsed, "fills context_logits"},
      {"return_generation_logits", kBool, {1}, kUsed, "fills generation_logits"},
      {"return_prompt_log_probs", kBool, {1}, kUsed, "fills prompt_log_probs (extension)"},
      {"return_kv_cache_reuse_stats", kBool, {1}, kUsed, "fills the kv_cache_* outputs"},
      {"return_perf_metrics", kBool, {1}, kUsed, "fills times and KV cache figures"},
      {"priority", kInt, {1}, kUsed, "a greater one is scheduled earlier (extension)"},
      {"cache_salt",
       DataType::kBytes,
       {1},
       kUsed,
       "cached prefixes are shared only within a salt (extension)"},
      {"stop_token_ids", kInt, {-1}, kUsed, "further ids that end the output (extension)"},
      {"ignore_eos", kBool, {1}, kUsed, "the end id does not end the output (extension)"},
      {"include_stop_str_in_output",
       kBool,
       {1},
       kUsed,
       "the stop word stays in the output (extension)"},
      {"skip_special_tokens",
       kBool,
       {1},
       kUsed,
       "special tokens are left out of the text (extension)"},
      {"logit_bias_ids", kInt, {-1}, kUsed, "ids whose logits are changed (extension)"},
      {"logit_bias_values", kFloat, {-1}, kUsed, "what is added to their logits (extension)"},
      {"allowed_token_ids", kInt, {-1}, kUsed, "only these are generated (extension)"},
      {"num_top_logprobs", kInt, {1}, kUsed, "fills top_logprob_ids and top_logprobs (extension)"},
      {"return_token_ids", kBool, {1}, kUsed, "fills prompt_ids and output_token_ids (extension)"},
      {"num_prompt_logprobs",
       kInt,
       {1},
       kUsed,
       "fills prompt_top_logprob_ids and prompt_top_logprobs (extension)"},
      {"thinking_token_budget", kInt, {1}, kUsed, "the most tokens of the reasoning (extension)"},
      {"thinking_begin_ids",
       kInt,
       {-1},
       kUsed,
       "the ids that begin the reasoning; none: the prompt has begun it (extension)"},
      {"thinking_end_ids", kInt, {-1}, kUsed, "the ids that end the reasoning (extension)"},
      {"decoder_input_ids",
       kInt,
       {-1},
       kRefuseSeveral,
       "encoder-decoder models; one id passes, because the published preprocessing always sends "
       "it"},
      {"decoder_input_lengths", kInt, {1}, kRefuseAboveOne, "encoder-decoder models"},
      {"draft_input_ids", kInt, {-1}, kUsed, "a guess of the output"},
      {"draft_logits",
       kFloat,
       {-1, -1},
       kUsed,
       "the logits from which draft_input_ids were drawn",
       true,
       true},
      {"draft_acceptance_threshold",
       kFloat,
       {1},
       kUsed,
       "with draft_logits: the part of the drafter's probability that accepts a token"},
      {"prompt_embedding_table",
       DataType::kFp16,
       {-1, -1},
       kUsed,
       "a prompt table: row r is the embedding of id vocab_size + r of input_ids",
       true,
       true},
      {"prompt_vocab_size", kInt, {1}, kUsed, "the rows of prompt_embedding_table that count"},
      {"prompt_table_extra_ids",
       kUint64,
       {-1},
       kUsed,
       "for each of input_ids; ids of the table share cached prefixes only if these are equal"},
      {"prompt_embeds",
       kFloat,
       {-1, -1},
       kUsed,
       "embeddings that precede the tokens of input_ids (extension)",
       true,
       true},
      {"lora_task_id", kUint64, {1}, kUsed, "a LoRA adapter that was sent before"},
      {"lora_weights", DataType::kFp16, {-1, -1}, kUsed, "a LoRA adapter to keep"},
      {"lora_config", kInt, {-1, 3}, kUsed, "the matrices of lora_weights"},
      {"lora_name", DataType::kBytes, {1}, kUsed, "a LoRA adapter that the model knows"},
      {"encoder_input_features",
       DataType::kFp16,
       {-1, -1},
       kRefuseNonEmpty,
       "encoder-decoder models",
       true,
       true},
      {"encoder_output_lengths", kInt, {1}, kRefuseNonEmpty, "encoder-decoder models"},
      {"cross_attention_mask", kBool, {-1, -1}, kRefuseNonEmpty, "cross attention"},
      {"skip_cross_attn_blocks", kBool, {1}, kRefuseTrue, "cross attention"},
      {"context_phase_params",
       DataType::kUint8,
       {-1},
       kRefuseNonEmpty,
       "context and generation on different servers"},
      {"retention_token_range_starts",
       kInt,
       {-1},
       kUsed,
       "where ranges of the prompt begin whose cached blocks are kept longer or shorter"},
      {"retention_token_range_ends", kInt, {-1}, kUsed, "where they end; -1: with the prompt"},
      {"retention_token_range_priorities",
       kInt,
       {-1},
       kUsed,
       "their retention priorities, 0 to 100; 35 is that of others"},
      {"retention_token_range_durations_ms",
       kInt,
       {-1},
       kUsed,
       "how long the priorities hold once the blocks are unused; -1: without end"},
      {"retention_decode_priority",
       kInt,
       {1},
       kUsed,
       "the retention priority of the output's blocks"},
      {"retention_decode_duration_ms", kInt, {1}, kUsed, "how long it holds; -1: without end"},
      {"mrope_rotary_cos_sin", kFloat, {-1}, kRefuseNonEmpty, "multimodal rotary positions"},
      {"mrope_position_deltas",
       DataType::kInt64,
       {1},
       kRefuseNonEmpty,
       "multimodal rotary positions"},
      {"guided_decoding_guide_type", DataType::kBytes, {1}, kUsed, "what the guide is"},
      {"guided_decoding_guide", DataType::kBytes, {1}, kUsed, "the form of the answer"},
      {"lookahead_window_size",
       kInt,
       {1},
       kUsed,
       "lookahead decoding: columns of the window, up to those of the model"},
      {"lookahead_ngram_size",
       kInt,
       {1},
       kUsed,
       "lookahead decoding: tokens of an n-gram, up to those of the model"},
      {"lookahead_verification_set_size",
       kInt,
       {1},
       kUsed,
       "lookahead decoding: n-grams that a step verifies, up to those of the model"},
  };
  return inputs;
}

const std::vector<EngineOutput>& EngineOutputs() {
  constexpr auto kInt = DataType::kInt32;
  constexpr auto kFloat = DataType::kFp32;
  constexpr auto kBool = DataType::kBool;
  constexpr auto kUint64 = DataType::kUint64;
  static const std::vector<EngineOutput> outputs = {
      {"output_ids", kInt, {-1, -1}, "in every response"},
      {"sequence_length", kInt, {-1}, "in every response"},
      {"cum_log_probs", kFloat, {-1}, "with return_log_probs"},
      {"output_log_probs", kFloat, {-1, -1}, "with return_log_probs"},
      {"context_logits", kFloat, {-1, -1}, "with return_context_logits", OutputRule::kSet, true},
      {"generation_logits",
       kFloat,
       {-1, -1, -1},
       "with return_generation_logits",
       OutputRule::kSet,
       true},
      {"batch_index",
       kInt,
       {1},
       "in requests of several rows; in a model of a release before 0.14 always"},
      {"sequence_index", kInt, {1}, "where several sequences have responses of their own"},
      {"context_phase_params",
       DataType::kUint8,
       {-1},
       "context and generation on different servers",
       OutputRule::kRefuse},
      {"num_input_tokens",
       kInt,
       {1},
       "with return_num_input_tokens, or always if the model does not declare that input"},
      {"num_output_tokens",
       kInt,
       {1},
       "with return_num_output_tokens, or always if the model does not declare that input"},
      {"kv_cache_alloc_new_blocks",
       kInt,
       {1},
       "with return_kv_cache_reuse_stats or return_perf_metrics"},
      {"kv_cache_reused_blocks",
       kInt,
       {1},
       "with return_kv_cache_reuse_stats or return_perf_metrics"},
      {"kv_cache_alloc_total_blocks",
       kInt,
       {1},
       "with return_kv_cache_reuse_stats or return_perf_metrics"},
      {"arrival_time_ns", DataType::kInt64, {1}, "with return_perf_metrics"},
      {"first_scheduled_time_ns", DataType::kInt64, {1}, "with return_perf_metrics"},
      {"first_token_time_ns", DataType::kInt64, {1}, "with return_perf_metrics"},
      {"last_token_time_ns", DataType::kInt64, {1}, "with return_perf_metrics"},
      {"acceptance_rate", kFloat, {1}, "with return_perf_metrics; 0 without draft tokens"},
      {"total_accepted_draft_tokens", kInt, {1}, "with return_perf_metrics"},
      {"total_draft_tokens", kInt, {1}, "with return_perf_metrics"},
      {"prior_ids", kInt, {-1}, "in every response (extension)"},
      {"finish_reason", DataType::kBytes, {1}, "in every response (extension)"},
      {"stream_position", kUint64, {2}, "in every response (extension)"},
      {"num_cached_tokens",
       kInt,
       {1},
       "in the first and the last response of a sequence (extension)"},
      {"stop_reason",
       DataType::kBytes,
       {1},
       "in the last response of a sequence: the stop word or end id of the request, or that "
       "max_tokens was cut (extension)"},
      {"skip_special_tokens", kBool, {1}, "as in the request (extension)"},
      {"prompt_ids", kInt, {-1}, "with return_token_ids or return_prompt_log_probs (extension)"},
      {"output_token_ids", kInt, {-1}, "with return_token_ids (extension)"},
      {"top_logprob_ids", kInt, {-1, -1}, "with num_top_logprobs (extension)"},
      {"top_logprobs", kFloat, {-1, -1}, "with num_top_logprobs (extension)"},
      {"prompt_log_probs", kFloat, {-1}, "with return_prompt_log_probs (extension)"},
      {"prompt_top_logprob_ids", kInt, {-1, -1}, "with num_prompt_logprobs (extension)"},
      {"prompt_top_logprobs", kFloat, {-1, -1}, "with num_prompt_logprobs (extension)"},
  };
  return outputs;
}

const EngineInput* FindEngineInput(std::string_view name) {
  return Find(EngineInputs(), name);
}

const EngineOutput* FindEngineOutput(std::string_view name) {
  return Find(EngineOutputs(), name);
}

std::string SuggestEngineInput(std::string_view name) {
  return Suggest(EngineInputs(), name);
}

std::string SuggestEngineOutput(std::string_view name) {
  return Suggest(EngineOutputs(), name);
}

bool FitsType(DataType known, bool any_float, DataType declared) {
  if (declared == known) return true;
  if (known == DataType::kInt32) return declared == DataType::kUint32;
  return any_float && (declared == DataType::kFp32 || declared == DataType::kFp16 ||
                       declared == DataType::kBf16);
}

Status RefusalOf(const EngineInput& input) {
  return UnsupportedError("input '", input.name, "': this feature is not supported (", input.about,
                          ")");
}

std::string NoteOf(const EngineInput& input) {
  return StrCat("input '", input.name, "' ", kTunesNothing, " (", input.about, ")");
}

}  // namespace nereid::llm
