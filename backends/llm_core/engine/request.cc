// Checks ranges of request fields.
#include "backends/llm_core/engine/request.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/grammar/grammar.h"
#include "backends/llm_core/lora/lora_adapter.h"
#include "backends/llm_core/prompt/prompt_embeddings.h"

#include <algorithm>
#include <cmath>

namespace nereid::llm {
namespace {

constexpr int32_t kMaxPriority = 1000;

Status CheckIds(const char* name, const TokenIds& ids, int32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return InvalidArgError("'", name, "': token id ", ids[i], " at index ", i, ", expected 0 to ",
                             vocab_size - 1);
    }
  }
  return Status::Ok();
}

// Ids of virtual tokens are not those of the client, and need no check.
Status CheckPrompt(const GenerationRequest& request, int32_t vocab_size) {
  if (request.prompt.empty()) return InvalidArgError("'input_ids': the prompt is empty");
  if (request.embeddings == nullptr) return CheckIds("input_ids", request.prompt, vocab_size);
  TokenIds tokens = request.prompt;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (request.embeddings->RowAt(static_cast<int32_t>(i)) >= 0) tokens[i] = 0;
  }
  return CheckIds("input_ids", tokens, vocab_size);
}

Status CheckBeams(const GenerationRequest& request) {
  const BeamParams& beams = request.beams;
  if (beams.width < 1) {
    return InvalidArgError("'beam_width' is ", beams.width, ", expected 1 or more");
  }
  if (!(std::abs(beams.length_penalty) <= 100.0f)) {
    return InvalidArgError("'len_penalty' is ", beams.length_penalty, ", expected -100 to 100");
  }
  if (!(beams.diversity_rate >= 0.0f && beams.diversity_rate <= 1e6f)) {
    return InvalidArgError("'beam_search_diversity_rate' is ", beams.diversity_rate,
                           ", expected 0 to 1e6");
  }
  if (!request.uses_beams()) return Status::Ok();
  if (request.sampling.num_top_log_probs > 0) {
    return UnsupportedError("'num_top_logprobs' is ", request.sampling.num_top_log_probs,
                            " and 'beam_width' is ", beams.width,
                            ": beam search has no list of likely tokens, expected 0");
  }
  if (request.num_sequences > beams.width) {
    return InvalidArgError("'num_return_sequences' is ", request.num_sequences,
                           ", expected at most the beam_width, ", beams.width);
  }
  return Status::Ok();
}

Status CheckReasoning(const GenerationRequest& request, int32_t vocab_size) {
  if (!request.reasoning) return Status::Ok();
  const ReasoningLimit& limit = *request.reasoning;
  if (limit.max_tokens < 0) {
    return InvalidArgError("'thinking_token_budget' is ", limit.max_tokens, ", expected 0 or more");
  }
  NEREID_RETURN_IF_ERROR(CheckIds("thinking_begin_ids", limit.begin_ids, vocab_size));
  NEREID_RETURN_IF_ERROR(CheckIds("thinking_end_ids", limit.end_ids, vocab_size));
  if (limit.end_ids.empty()) {
    return InvalidArgError("'thinking_token_budget' is ", limit.max_tokens,
                           ": it needs 'thinking_end_ids'");
  }
  if (request.uses_beams()) {
    return UnsupportedError("'thinking_token_budget' is ", limit.max_tokens,
                            " and 'beam_width' is ", request.beams.width,
                            ": beam search has no reasoning budget, expected a beam_width of 1");
  }
  if (request.grammar == nullptr) return Status::Ok();
  return UnsupportedError("'thinking_token_budget' is ", limit.max_tokens,
                          " and 'guided_decoding_guide' is given: the guide decides each token");
}

Status CheckPromptLogProbs(const GenerationRequest& request, int32_t vocab_size) {
  const int32_t num_top = request.num_prompt_top_log_probs;
  const int32_t max_top = std::min(kMaxTopLogProbs, vocab_size);
  if (num_top < 0 || num_top > max_top) {
    return InvalidArgError("'num_prompt_logprobs' is ", num_top, ", expected 0 to ", max_top);
  }
  if (num_top == 0 || !request.uses_beams()) return Status::Ok();
  return UnsupportedError("'num_prompt_logprobs' is ", num_top, " and 'beam_width' is ",
                          request.beams.width,
                          ": beam search has no list of likely tokens, expected 0");
}

Status CheckDrafts(const GenerationRequest& request, int32_t vocab_size) {
  NEREID_RETURN_IF_ERROR(CheckIds("draft_input_ids", request.draft_ids, vocab_size));
  if (request.uses_beams() && !request.draft_ids.empty()) {
    return UnsupportedError("'draft_input_ids' has ", request.draft_ids.size(),
                            " tokens and 'beam_width' is ", request.beams.width,
                            ": beam search has no draft tokens, expected none");
  }
  const size_t expected = request.draft_ids.size() * static_cast<size_t>(vocab_size);
  if (!request.draft_logits.empty() && request.draft_logits.size() != expected) {
    return InvalidArgError("'draft_logits' has ", request.draft_logits.size(),
                           " values: expected [", request.draft_ids.size(), ", ", vocab_size,
                           "], the number of draft_input_ids and the vocabulary");
  }
  if (!(request.draft_threshold >= 0.0f && request.draft_threshold <= 1.0f)) {
    return InvalidArgError("'draft_acceptance_threshold' is ", request.draft_threshold,
                           ", expected 0 to 1");
  }
  return Status::Ok();
}

Status CheckFeatures(const GenerationRequest& request, const ExecutorFeatures& features) {
  const auto refuse = [](const char* name) {
    return UnsupportedError("'", name, "': this backend's executor does not support it");
  };
  if (request.uses_beams() && !features.candidates) return refuse("beam_width");
  if (request.returns_context_logits && !features.logits) return refuse("return_context_logits");
  if (request.returns_generation_logits && !features.logits)
    return refuse("return_generation_logits");
  if (request.returns_prompt_log_probs && !features.prompt_log_probs) {
    return refuse("return_prompt_log_probs");
  }
  if (request.num_prompt_top_log_probs > 0 && !features.logits) {
    return refuse("num_prompt_logprobs");
  }
  if (request.embeddings != nullptr) {
    if (!features.prompt_embeddings) return refuse(request.embeddings->input_name);
    if (request.returns_prompt_log_probs) {
      return UnsupportedError("'return_prompt_log_probs' (num_prompt_logprobs) is given, and '",
                              request.embeddings->input_name, "': an embedding has no probability");
    }
  }
  if (!request.draft_ids.empty() && !features.draft_tokens) return refuse("draft_input_ids");
  if (!request.draft_logits.empty() && !features.draft_logits) return refuse("draft_logits");
  if (request.sampling.num_top_log_probs > 0 && !features.top_tokens) {
    return refuse("num_top_logprobs");
  }
  if (request.grammar != nullptr && !features.token_masks) return refuse("guided_decoding_guide");
  if (request.adapter != nullptr && !features.adapters) {
    return UnsupportedError("LoRA adapter '", request.adapter->name(),
                            "': this backend's executor does not support LoRA adapters");
  }
  return Status::Ok();
}

Status CheckGrammar(const GenerationRequest& request, int32_t vocab_size) {
  if (request.grammar == nullptr) return Status::Ok();
  if (request.uses_beams()) {
    return UnsupportedError("'beam_width' is ", request.beams.width,
                            " and 'guided_decoding_guide' is given: beam search follows no "
                            "grammar, expected a beam_width of 1");
  }
  const size_t num_tokens = request.grammar->vocabulary().size();
  if (num_tokens == static_cast<size_t>(vocab_size)) return Status::Ok();
  return InternalError("the grammar's vocabulary has ", num_tokens, " tokens and the model's ",
                       vocab_size);
}

}  // namespace

Status CheckRequest(const GenerationRequest& request, const ExecutorLimits& limits,
                    const ExecutorFeatures& features) {
  NEREID_RETURN_IF_ERROR(CheckPrompt(request, limits.vocab_size));
  if (request.stop.max_tokens < 1) {
    return InvalidArgError("'request_output_len' (max_tokens) is ", request.stop.max_tokens,
                           ", expected 1 or more");
  }
  if (request.stop.min_tokens < 0) {
    return InvalidArgError("'min_tokens' is ", request.stop.min_tokens, ", expected 0 or more");
  }
  if (request.num_sequences < 1) {
    return InvalidArgError("'num_return_sequences' is ", request.num_sequences,
                           ", expected 1 or more");
  }
  if (request.priority < -kMaxPriority || request.priority > kMaxPriority) {
    return InvalidArgError("'priority' is ", request.priority, ", expected ", -kMaxPriority, " to ",
                           kMaxPriority);
  }
  if (request.retention != nullptr) {
    NEREID_RETURN_IF_ERROR(
        CheckRetention(*request.retention, static_cast<int32_t>(request.prompt.size())));
  }
  NEREID_RETURN_IF_ERROR(CheckBeams(request));
  NEREID_RETURN_IF_ERROR(CheckDrafts(request, limits.vocab_size));
  NEREID_RETURN_IF_ERROR(CheckIds("end_id", request.stop.end_ids, limits.vocab_size));
  for (const TokenIds& word : request.stop.stop_words) {
    NEREID_RETURN_IF_ERROR(CheckIds("stop_words_list", word, limits.vocab_size));
  }
  NEREID_RETURN_IF_ERROR(CheckSamplingParams(request.sampling, limits.vocab_size));
  NEREID_RETURN_IF_ERROR(CheckGrammar(request, limits.vocab_size));
  NEREID_RETURN_IF_ERROR(CheckReasoning(request, limits.vocab_size));
  NEREID_RETURN_IF_ERROR(CheckPromptLogProbs(request, limits.vocab_size));
  return CheckFeatures(request, features);
}

}  // namespace nereid::llm
