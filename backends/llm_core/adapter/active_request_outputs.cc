// The outputs that only some responses of an ActiveRequest have.
#include <array>
#include <utility>

#include "backends/llm_core/adapter/active_request.h"
#include "backends/llm_core/adapter/logits_format.h"

namespace nereid::llm {
namespace {

constexpr std::array<float, 1> kNoLogits{};

}  // namespace

// Most responses of a stream have none of these outputs.
Status ActiveRequest::FillExtensions(Response& response, const SequenceState& sequence,
                                     std::span<const SequenceUpdate> all) {
  Item& item = items_[sequence.item];
  const SequenceUpdate& first = all[0];
  if ((sequence.prior_ids.empty() || first.is_over()) &&
      IsRequested(response, "num_cached_tokens")) {
    NEREID_RETURN_IF_ERROR(response.SetOutput<int32_t>("num_cached_tokens", Shape({1}),
                                                       std::span(&first.num_cached_tokens, 1)));
  }
  if (first.is_over() && IsRequested(response, "stop_reason")) {
    const std::string_view reason[] = {first.stop_reason};
    NEREID_RETURN_IF_ERROR(response.SetStrings("stop_reason", Shape({1}), reason));
  }
  if (item.skips_special_tokens && IsRequested(response, "skip_special_tokens")) {
    const Bool skips = *item.skips_special_tokens;
    NEREID_RETURN_IF_ERROR(
        response.SetOutput<Bool>("skip_special_tokens", Shape({1}), std::span(&skips, 1)));
  }
  if (item.num_top_log_probs > 0) NEREID_RETURN_IF_ERROR(FillTopTokens(response, item, all));
  if (item.returns_prompt_ids && !std::exchange(item.has_sent_prompt, true) &&
      IsRequested(response, "prompt_ids")) {
    NEREID_RETURN_IF_ERROR(response.SetOutput<int32_t>(
        "prompt_ids", Shape({static_cast<int64_t>(item.prompt.size())}), item.prompt));
  }
  if (!first.prompt_top_tokens.empty()) {
    NEREID_RETURN_IF_ERROR(SetTopTokens(response, "prompt_top_logprob_ids", "prompt_top_logprobs",
                                        first.prompt_top_tokens, item.num_prompt_top_log_probs));
  }
  if (!item.returns_token_ids) return {};
  if (!IsRequested(response, "output_token_ids")) return {};
  llm::TokenIds ids;
  for (const SequenceUpdate& update : all)
    ids.insert(ids.end(), update.ids.begin(), update.ids.end());
  return response.SetOutput<int32_t>("output_token_ids", Shape({static_cast<int64_t>(ids.size())}),
                                     ids);
}

Status ActiveRequest::FillTopTokens(Response& response, const Item& item,
                                    std::span<const SequenceUpdate> all) {
  std::vector<llm::SampledToken> tokens;
  for (const SequenceUpdate& update : all) {
    tokens.insert(tokens.end(), update.top_tokens.begin(), update.top_tokens.end());
  }
  return SetTopTokens(response, "top_logprob_ids", "top_logprobs", tokens, item.num_top_log_probs);
}

Status ActiveRequest::SetTopTokens(Response& response, const char* ids_name,
                                   const char* log_probs_name,
                                   std::span<const llm::SampledToken> tokens, int32_t num_top) {
  llm::TokenIds ids;
  std::vector<float> log_probs;
  for (const llm::SampledToken& token : tokens) {
    ids.push_back(token.id);
    log_probs.push_back(token.log_prob);
  }
  const std::vector<int64_t> shape = Shape({static_cast<int64_t>(ids.size()) / num_top, num_top});
  if (IsRequested(response, ids_name))
    NEREID_RETURN_IF_ERROR(response.SetOutput<int32_t>(ids_name, shape, ids));
  if (!IsRequested(response, log_probs_name)) return {};
  return response.SetOutput<float>(log_probs_name, shape, log_probs);
}

Status ActiveRequest::FillLogits(Response& response, std::span<const SequenceUpdate> all) {
  const SequenceUpdate& first = all[0];
  if (!first.prompt_log_probs.empty() && IsRequested(response, "prompt_log_probs")) {
    NEREID_RETURN_IF_ERROR(response.SetOutput<float>(
        "prompt_log_probs", Shape({static_cast<int64_t>(first.prompt_log_probs.size())}),
        first.prompt_log_probs));
  }
  const auto vocab_size = int64_t{outputs_.vocab_size};
  if (!first.context_logits.empty() && IsRequested(response, "context_logits")) {
    const int64_t num_rows = static_cast<int64_t>(first.context_logits.size()) / vocab_size;
    NEREID_RETURN_IF_ERROR(SetLogits(response, "context_logits", outputs_.context_logits,
                                     Shape({num_rows, vocab_size}), first.context_logits));
  } else if (outputs_.fills_unrequested && IsRequested(response, "context_logits")) {
    NEREID_RETURN_IF_ERROR(
        SetLogits(response, "context_logits", outputs_.context_logits, Shape({1, 1}), kNoLogits));
  }
  size_t longest = 0;
  for (const SequenceUpdate& update : all)
    longest = std::max(longest, update.generation_logits.size());
  if (!IsRequested(response, "generation_logits")) return {};
  if (longest == 0) {
    if (!outputs_.fills_unrequested) return {};
    return SetLogits(response, "generation_logits", outputs_.generation_logits, Shape({1, 1, 1}),
                     kNoLogits);
  }
  std::vector<float> logits;
  for (const SequenceUpdate& update : all) {
    logits.insert(logits.end(), update.generation_logits.begin(), update.generation_logits.end());
    logits.insert(logits.end(), longest - update.generation_logits.size(), 0.0f);
  }
  return SetLogits(response, "generation_logits", outputs_.generation_logits,
                   Shape({static_cast<int64_t>(all.size()),
                          static_cast<int64_t>(longest) / vocab_size, vocab_size}),
                   logits);
}

Status ActiveRequest::SetLogits(Response& response, const char* name, DataType datatype,
                                const std::vector<int64_t>& shape, std::span<const float> logits) {
  NEREID_ASSIGN_OR_RETURN(
      const std::span<std::byte> target,
      response.OutputBytes(name, datatype, shape, logits.size() * ByteSize(datatype)));
  ConvertLogits(logits, datatype, target);
  return {};
}

Status ActiveRequest::FillStatistics(Response& response, const Item& item,
                                     const SequenceUpdate& update) {
  const auto set = [&]<typename T>(const char* name, T value) -> Status {
    if (!IsRequested(response, name)) return {};
    return response.SetOutput<T>(name, Shape({1}), std::span<const T>(&value, 1));
  };
  if (item.returns_cache_stats || item.returns_perf_metrics) {
    NEREID_RETURN_IF_ERROR(set("kv_cache_alloc_new_blocks", update.num_new_blocks));
    NEREID_RETURN_IF_ERROR(set("kv_cache_reused_blocks", update.num_reused_blocks));
    NEREID_RETURN_IF_ERROR(
        set("kv_cache_alloc_total_blocks", update.num_new_blocks + update.num_reused_blocks));
  }
  if (!item.returns_perf_metrics) return {};
  NEREID_RETURN_IF_ERROR(set("arrival_time_ns", update.timing.arrival_ns));
  NEREID_RETURN_IF_ERROR(set("first_scheduled_time_ns", update.timing.first_scheduled_ns));
  NEREID_RETURN_IF_ERROR(set("first_token_time_ns", update.timing.first_token_ns));
  NEREID_RETURN_IF_ERROR(set("last_token_time_ns", update.timing.last_token_ns));
  const auto num_drafts = static_cast<int32_t>(update.num_draft_tokens);
  const auto num_accepted = static_cast<int32_t>(update.num_accepted_draft_tokens);
  const float rate =
      num_drafts == 0 ? 0.0f : static_cast<float>(num_accepted) / static_cast<float>(num_drafts);
  NEREID_RETURN_IF_ERROR(set("acceptance_rate", rate));
  NEREID_RETURN_IF_ERROR(set("total_accepted_draft_tokens", num_accepted));
  return set("total_draft_tokens", num_drafts);
}

}  // namespace nereid::llm
