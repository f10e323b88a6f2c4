// Collects what the engine reports, and makes the tensors of a response of it.
#include "backends/llm_core/adapter/extra_outputs.h"

#include <algorithm>
#include <array>

#include "backends/llm_core/adapter/logits_format.h"

namespace nereid::llm {
namespace {

constexpr std::array<float, 1> kNoLogits{};
constexpr float kLogProbPadding = -1.0f;  // pads the shorter sequences of a response

template <typename T>
void Append(std::vector<T>& to, std::span<const T> from) {
  to.insert(to.end(), from.begin(), from.end());
}

Status SetLogProbs(ResponseTensors& to, const ExtraOutputs& asked,
                   std::span<const SequenceUpdate> all, size_t longest) {
  if (!asked.log_probs && !to.outputs().fills_unrequested) return {};
  const float filler = asked.log_probs ? kLogProbPadding : 0.0f;
  std::vector<float> sums, log_probs;
  for (const SequenceUpdate& update : all) {
    sums.push_back(asked.log_probs ? update.extras.cum_log_prob : 0.0f);
    Append<float>(log_probs, update.extras.log_probs);
    log_probs.insert(log_probs.end(), longest - update.extras.log_probs.size(), filler);
  }
  NEREID_RETURN_IF_ERROR(to.SetAll("cum_log_probs", sums));
  return to.Set<float>("output_log_probs", {std::ssize(all), static_cast<int64_t>(longest)},
                       log_probs);
}

// `num_top` of `tokens` for each row.
Status SetTopTokens(ResponseTensors& to, const char* ids_name, const char* log_probs_name,
                    std::span<const llm::SampledToken> tokens, int32_t num_top) {
  llm::TokenIds ids;
  std::vector<float> log_probs;
  for (const llm::SampledToken& token : tokens) {
    ids.push_back(token.id);
    log_probs.push_back(token.log_prob);
  }
  const int64_t num_rows = std::ssize(ids) / num_top;
  NEREID_RETURN_IF_ERROR(to.Set<int32_t>(ids_name, {num_rows, num_top}, ids));
  return to.Set<float>(log_probs_name, {num_rows, num_top}, log_probs);
}

Status SetTopTokensOfAll(ResponseTensors& to, const ExtraOutputs& asked,
                         std::span<const SequenceUpdate> all) {
  if (asked.num_top_log_probs > 0) {
    std::vector<llm::SampledToken> tokens;
    for (const SequenceUpdate& update : all)
      Append<llm::SampledToken>(tokens, update.extras.top_tokens);
    NEREID_RETURN_IF_ERROR(
        SetTopTokens(to, "top_logprob_ids", "top_logprobs", tokens, asked.num_top_log_probs));
  }
  if (all[0].extras.prompt_top_tokens.empty()) return {};
  return SetTopTokens(to, "prompt_top_logprob_ids", "prompt_top_logprobs",
                      all[0].extras.prompt_top_tokens, asked.num_prompt_top_log_probs);
}

Status SetLogits(ResponseTensors& to, const char* name, DataType type,
                 std::initializer_list<int64_t> dims, std::span<const float> logits) {
  NEREID_ASSIGN_OR_RETURN(const std::span<std::byte> target,
                          to.Bytes(name, type, dims, logits.size()));
  ConvertLogits(logits, type, target);
  return {};
}

Status SetContextLogits(ResponseTensors& to, std::span<const float> logits) {
  constexpr const char* kName = "context_logits";
  const ConfiguredOutputs& outputs = to.outputs();
  if ((logits.empty() && !outputs.fills_unrequested) || !to.IsRequested(kName)) return {};
  if (logits.empty()) return SetLogits(to, kName, outputs.context_logits, {1, 1}, kNoLogits);
  const auto vocab_size = int64_t{outputs.vocab_size};
  return SetLogits(to, kName, outputs.context_logits, {std::ssize(logits) / vocab_size, vocab_size},
                   logits);
}

// Zeros are the logits of ids that were not sampled, and pad the shorter sequences. `num_ids`: of
// the longest sequence.
Status SetGenerationLogits(ResponseTensors& to, const ExtraOutputs& asked,
                           std::span<const SequenceUpdate> all, size_t num_ids) {
  constexpr const char* kName = "generation_logits";
  const ConfiguredOutputs& outputs = to.outputs();
  const size_t longest =
      asked.generation_logits ? num_ids * static_cast<size_t>(outputs.vocab_size) : 0;
  if ((longest == 0 && !outputs.fills_unrequested) || !to.IsRequested(kName)) return {};
  if (longest == 0) return SetLogits(to, kName, outputs.generation_logits, {1, 1, 1}, kNoLogits);
  std::vector<float> logits;
  for (const SequenceUpdate& update : all) {
    Append<float>(logits, update.extras.generation_logits);
    logits.insert(logits.end(), longest - update.extras.generation_logits.size(), 0.0f);
  }
  const auto vocab_size = int64_t{outputs.vocab_size};
  return SetLogits(to, kName, outputs.generation_logits,
                   {std::ssize(all), static_cast<int64_t>(longest) / vocab_size, vocab_size},
                   logits);
}

Status SetStatistics(ResponseTensors& to, const ExtraOutputs& asked, const SequenceUpdate& update) {
  const ExtraResults& done = update.extras;
  if (asked.cache_stats || asked.perf_metrics) {
    NEREID_RETURN_IF_ERROR(to.SetOne("kv_cache_alloc_new_blocks", done.num_new_blocks));
    NEREID_RETURN_IF_ERROR(to.SetOne("kv_cache_reused_blocks", done.num_reused_blocks));
    NEREID_RETURN_IF_ERROR(
        to.SetOne("kv_cache_alloc_total_blocks", done.num_new_blocks + done.num_reused_blocks));
  }
  if (!asked.perf_metrics) return {};
  NEREID_RETURN_IF_ERROR(to.SetOne("arrival_time_ns", update.timing.arrival_ns));
  NEREID_RETURN_IF_ERROR(to.SetOne("first_scheduled_time_ns", update.timing.first_scheduled_ns));
  NEREID_RETURN_IF_ERROR(to.SetOne("first_token_time_ns", update.timing.first_token_ns));
  NEREID_RETURN_IF_ERROR(to.SetOne("last_token_time_ns", update.timing.last_token_ns));
  const auto num_drafts = static_cast<int32_t>(done.num_draft_tokens);
  const auto num_accepted = static_cast<int32_t>(done.num_accepted_draft_tokens);
  const float rate =
      num_drafts == 0 ? 0.0f : static_cast<float>(num_accepted) / static_cast<float>(num_drafts);
  NEREID_RETURN_IF_ERROR(to.SetOne("acceptance_rate", rate));
  NEREID_RETURN_IF_ERROR(to.SetOne("total_accepted_draft_tokens", num_accepted));
  return to.SetOne("total_draft_tokens", num_drafts);
}

}  // namespace

void ExtraResults::AppendPrompt(const llm::SequenceOutput& output) {
  Append(context_logits, output.context_logits);
  Append(prompt_log_probs, output.prompt_log_probs);
  Append(prompt_top_tokens, output.prompt_top_tokens);
}

void ExtraResults::AppendTokens(const llm::SequenceOutput& output, size_t first, size_t num_ids,
                                const ExtraOutputs& asked) {
  if (asked.log_probs) {
    if (!output.log_probs.empty()) Append(log_probs, output.log_probs.subspan(first));
    log_probs.resize(num_ids);
  }
  if (!output.generation_logits.empty()) {
    const size_t vocab_size = output.generation_logits.size() / output.ids.size();
    Append(generation_logits, output.generation_logits.subspan(first * vocab_size));
    generation_logits.resize(num_ids * vocab_size);
  }
  const auto num_top = static_cast<size_t>(asked.num_top_log_probs);
  Append(top_tokens, output.top_tokens.subspan(first * num_top));
  top_tokens.resize(num_ids * num_top, {llm::kNoToken, 0.0f});
  cum_log_prob = output.cum_log_prob;
  num_reused_blocks = output.num_reused_blocks;
  num_new_blocks = output.num_new_blocks;
  num_cached_tokens = output.num_cached_tokens;
  num_draft_tokens = output.num_draft_tokens;
  num_accepted_draft_tokens = output.num_accepted_draft_tokens;
}

Status SetExtraOutputs(ResponseTensors& to, const ExtraOutputs& asked,
                       std::span<const SequenceUpdate> all, size_t longest,
                       const llm::TokenIds* prompt, bool is_first) {
  const SequenceUpdate& first = all[0];
  NEREID_RETURN_IF_ERROR(SetLogProbs(to, asked, all, longest));
  if (is_first || first.is_over()) {
    NEREID_RETURN_IF_ERROR(to.SetOne("num_cached_tokens", first.extras.num_cached_tokens));
  }
  if (first.is_over()) NEREID_RETURN_IF_ERROR(to.SetText("stop_reason", first.stop_reason));
  if (asked.skips_special_tokens) {
    NEREID_RETURN_IF_ERROR(
        to.SetOne<Bool>("skip_special_tokens", Bool{*asked.skips_special_tokens}));
  }
  if (asked.prompt_ids && prompt != nullptr) {
    NEREID_RETURN_IF_ERROR(to.SetAll("prompt_ids", *prompt));
  }
  NEREID_RETURN_IF_ERROR(SetTopTokensOfAll(to, asked, all));
  if (asked.token_ids) {
    llm::TokenIds ids;
    for (const SequenceUpdate& update : all) Append<int32_t>(ids, update.ids);
    NEREID_RETURN_IF_ERROR(to.SetAll("output_token_ids", ids));
  }
  if (!first.extras.prompt_log_probs.empty()) {
    NEREID_RETURN_IF_ERROR(to.SetAll("prompt_log_probs", first.extras.prompt_log_probs));
  }
  NEREID_RETURN_IF_ERROR(SetContextLogits(to, first.extras.context_logits));
  NEREID_RETURN_IF_ERROR(SetGenerationLogits(to, asked, all, longest));
  return SetStatistics(to, asked, first);
}

}  // namespace nereid::llm
