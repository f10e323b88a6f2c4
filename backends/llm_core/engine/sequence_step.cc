// Batch entries, kept logits and emitted output of a sequence.
#include "backends/llm_core/engine/sequence_step.h"

#include <algorithm>
#include <span>
#include <utility>

#include "backends/llm_core/engine/beam_search.h"

namespace nereid::llm {
namespace {

// Sets the fields for beam search, returned logits and prompt log probabilities.
void AddOptionalOutputs(const Sequence& sequence, BatchEntry& entry) {
  const GenerationRequest& request = *sequence.request;
  if (entry.samples && request.uses_beams()) {
    entry.num_candidates = BeamSearch::NumCandidates(request.beams, request.stop);
  }
  if (sequence.kept_logits == nullptr) return;
  entry.returns_logits = entry.samples && request.returns_generation_logits;
  if (entry.samples) {
    entry.num_top_tokens = static_cast<uint8_t>(request.sampling.num_top_log_probs);
  }
  if (!request.needs_whole_prompt() ||
      sequence.kept_logits->num_prompt_done >= sequence.num_prompt) {
    return;
  }
  entry.num_logits = entry.num_tokens;
  entry.returns_logits |= request.returns_context_logits || request.num_prompt_top_log_probs > 0;
  if (!request.returns_prompt_log_probs) return;
  const int32_t first = sequence.num_cached + 1;
  const int32_t count = std::min(entry.num_tokens, sequence.num_tokens() - first);
  entry.next_ids = std::span<const int32_t>(sequence.token_ids).subspan(first, count);
}

// The index of the adapter, which may be null, among those of the step.
int32_t AdapterIndex(const std::shared_ptr<const LoraAdapter>& adapter, StepBatch& batch) {
  if (adapter == nullptr) return kNoAdapter;
  auto found = std::find(batch.adapters.begin(), batch.adapters.end(), adapter);
  if (found == batch.adapters.end()) found = batch.adapters.insert(found, adapter);
  return static_cast<int32_t>(found - batch.adapters.begin());
}

// Keeps what the request returns for the prompt tokens of the entry. For a recomputed sequence:
// earlier rows were kept the first time, later rows belong to output tokens.
void KeepPromptOutputs(const BatchEntry& entry, size_t i, const StepResult& result,
                       int32_t vocab_size, Sequence& sequence) {
  SequenceLogits& kept = *sequence.kept_logits;
  const GenerationRequest& request = *sequence.request;
  const int32_t skip = kept.num_prompt_done - entry.num_cached;
  const int32_t end = std::min(entry.num_tokens, sequence.num_prompt - entry.num_cached);
  if (request.returns_context_logits && skip < end) {
    const auto first = result.logits[i].begin();
    kept.context_logits.insert(kept.context_logits.end(), first + ptrdiff_t{skip} * vocab_size,
                               first + ptrdiff_t{end} * vocab_size);
  }
  // The last prompt token is followed by output, which has no prompt log probability.
  const int32_t last = std::min(end, sequence.num_prompt - 1 - entry.num_cached);
  if (request.returns_prompt_log_probs && skip < last) {
    const std::vector<float>& found = result.prompt_log_probs[i];
    kept.prompt_log_probs.insert(kept.prompt_log_probs.end(), found.begin() + skip,
                                 found.begin() + last);
  }
  if (request.num_prompt_top_log_probs > 0) {
    const std::span<const float> logits = result.logits[i];
    std::vector<SampledToken> top;
    for (int32_t row = skip; row < last; ++row) {
      FindTopTokens(logits.subspan(size_t(row) * vocab_size, vocab_size),
                    request.num_prompt_top_log_probs, top);
      kept.prompt_top_tokens.insert(kept.prompt_top_tokens.end(), top.begin(), top.end());
    }
  }
  kept.num_prompt_done = std::max(kept.num_prompt_done, entry.num_cached + end);
}

// Adds the draft tokens that the step verifies.
void AppendDrafts(const Sequence& sequence, BatchEntry& entry, std::vector<int32_t>& token_ids) {
  const SequenceDrafts& drafts = *sequence.drafts;
  token_ids.insert(token_ids.end(), drafts.ids.begin(), drafts.ids.begin() + sequence.num_drafts);
  entry.num_draft_tokens = sequence.num_drafts;
  entry.num_tokens += sequence.num_drafts;
  entry.num_logits += sequence.num_drafts;
  const std::span<const int32_t> parents = drafts.parents;
  if (!parents.empty()) entry.draft_parents = parents.first(sequence.num_drafts);
  entry.returns_row_tokens = drafts.returns_row_tokens;
  if (drafts.logits.empty()) return;
  const GenerationRequest& request = *sequence.request;
  const size_t row_size = request.draft_logits.size() / request.draft_ids.size();
  entry.draft_logits = drafts.logits.first(row_size * sequence.num_drafts);
  entry.draft_threshold = request.draft_threshold;
}

// Adds the kept logits and log probabilities of the output's ids, and at first those of the prompt.
void AddKeptOutputs(Sequence& sequence, int32_t vocab_size, SequenceOutput& output) {
  const SequenceLogits& kept = *sequence.kept_logits;
  if (!std::exchange(sequence.was_emitted, true)) {
    output.prompt_log_probs = kept.prompt_log_probs;
    output.prompt_top_tokens = kept.prompt_top_tokens;
    output.context_logits = kept.context_logits;
  }
  const size_t num_logits = output.ids.size() * static_cast<size_t>(vocab_size);
  if (kept.generation_logits.size() >= num_logits) {
    output.generation_logits = std::span<const float>(kept.generation_logits).first(num_logits);
  }
  const auto num_top = static_cast<size_t>(sequence.request->sampling.num_top_log_probs);
  const std::span<const SampledToken> top = kept.top_tokens;
  output.top_tokens = top.first(num_top * output.ids.size());
}

}  // namespace

void AppendBatchEntry(const Sequence& sequence, int32_t num_tokens, StepBatch& batch) {
  const bool is_last_chunk = sequence.num_cached + num_tokens == sequence.num_tokens();
  BatchEntry& entry = batch.entries.emplace_back();
  entry.slot = sequence.slot;
  entry.first_token = static_cast<int32_t>(batch.token_ids.size());
  entry.num_tokens = num_tokens;
  entry.num_cached = sequence.num_cached;
  entry.uses_long_rope = sequence.uses_long_rope;
  entry.num_prompt = sequence.num_prompt;
  entry.adapter = AdapterIndex(sequence.request->adapter, batch);
  entry.prompt_embeddings = sequence.request->embeddings.get();
  entry.block_table = sequence.block_table;
  entry.num_logits = is_last_chunk ? 1 : 0;
  entry.returns_hidden_states = sequence.drafts != nullptr && sequence.drafts->reads_hidden_states;
  entry.samples = is_last_chunk;
  if (is_last_chunk) {
    entry.sampling.params = &sequence.sampling();
    entry.sampling.token_ids = sequence.token_ids;
    entry.sampling.num_prompt = sequence.num_prompt;
    entry.sampling.banned_ids = sequence.banned_ids();
    if (sequence.has_grammar) {
      entry.token_masks = sequence.grammar->masks(sequence.num_drafts);
      batch.has_token_masks = true;
    }
  }
  if (num_tokens == 1) {
    batch.token_ids.push_back(sequence.token_ids[sequence.num_cached]);
  } else {
    const auto first = sequence.token_ids.begin() + sequence.num_cached;
    batch.token_ids.insert(batch.token_ids.end(), first, first + num_tokens);
  }
  if (sequence.num_drafts > 0) AppendDrafts(sequence, entry, batch.token_ids);
  if (sequence.has_beams_or_logits) AddOptionalOutputs(sequence, entry);
}

void RemoveBatchEntries(const std::vector<bool>& is_removed, StepBatch& batch) {
  StepBatch kept;
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    if (is_removed[i]) continue;
    BatchEntry& entry = kept.entries.emplace_back(batch.entries[i]);
    const auto first = batch.token_ids.begin() + entry.first_token;
    entry.first_token = static_cast<int32_t>(kept.token_ids.size());
    kept.token_ids.insert(kept.token_ids.end(), first, first + entry.num_tokens);
    kept.has_token_masks |= !entry.token_masks.empty();
    if (entry.adapter != kNoAdapter)
      entry.adapter = AdapterIndex(batch.adapters[static_cast<size_t>(entry.adapter)], kept);
  }
  kept.block_copies = std::move(batch.block_copies);
  batch = std::move(kept);
}

void KeepLogits(const BatchEntry& entry, size_t i, const StepResult& result, int32_t vocab_size,
                Sequence& sequence) {
  SequenceLogits& kept = *sequence.kept_logits;
  if (entry.num_logits == entry.num_tokens && kept.num_prompt_done < sequence.num_prompt) {
    KeepPromptOutputs(entry, i, result, vocab_size, sequence);
  }
  if (entry.num_top_tokens > 0) {
    const std::vector<SampledToken>& top = result.top_tokens[i];
    kept.top_tokens.insert(kept.top_tokens.end(), top.begin(), top.end());
  }
  if (!entry.samples || !sequence.request->returns_generation_logits) return;
  const std::vector<float>& logits = result.logits[i];
  const auto keep = [&](int32_t row) {
    const auto first = logits.begin() + ptrdiff_t{row} * vocab_size;
    kept.generation_logits.insert(kept.generation_logits.end(), first, first + vocab_size);
  };
  if (sequence.request->uses_beams()) {
    kept.step_logits =
        std::make_shared<const std::vector<float>>(logits.end() - vocab_size, logits.end());
  } else if (entry.num_draft_tokens == 0) {
    kept.generation_logits.insert(kept.generation_logits.end(), logits.end() - vocab_size,
                                  logits.end());
  } else {
    keep(0);  // behind the newest token
    for (size_t n = 0; n < result.accepted[i].size(); ++n) keep(1 + AcceptedDraft(result, i, n));
  }
}

void EmitOutput(Sequence& sequence, const StopResult& stop, int32_t vocab_size) {
  const int32_t num_visible = stop.num_visible;
  if (num_visible <= sequence.num_emitted && sequence.finish == FinishReason::kNone) return;
  SequenceOutput output;
  output.ids = sequence.output_ids().first(num_visible);
  output.first_new = sequence.num_emitted;
  output.finish = sequence.finish;
  output.end_id = stop.end_id;
  output.stop_word = stop.stop_word;
  if (sequence.request->sampling.returns_log_probs) {
    output.log_probs = std::span<const float>(sequence.log_probs).first(num_visible);
    for (int32_t i = sequence.num_emitted; i < num_visible; ++i) {
      sequence.cum_log_prob += sequence.log_probs[i];
    }
    output.cum_log_prob = sequence.cum_log_prob;
  }
  output.sequence_index = sequence.index;
  output.num_reused_blocks = sequence.num_reused_blocks;
  output.num_new_blocks = sequence.num_new_blocks;
  output.num_cached_tokens = sequence.request->num_cached_tokens;
  if (sequence.drafts != nullptr) {
    output.num_draft_tokens = sequence.drafts->num_drafted;
    output.num_accepted_draft_tokens = sequence.drafts->num_accepted;
  }
  if (sequence.kept_logits != nullptr) AddKeptOutputs(sequence, vocab_size, output);
  sequence.num_emitted = num_visible;
  sequence.request->sink->OnOutput(output);
}

SampledToken ApplyReasoningBudget(const SampledToken& sampled, Sequence& sequence) {
  SampledToken token = sampled;
  token.id = sequence.reasoning->Apply(sampled.id);
  if (token.id != sampled.id) token.log_prob = 0.0f;  // no other token could follow
  if (sequence.reasoning->is_over()) {
    sequence.reasoning.reset();
    sequence.has_reasoning_budget = false;
  }
  return token;
}

void EmitCancellation(Sequence& sequence, int32_t vocab_size) {
  sequence.finish = FinishReason::kCancelled;
  if (!sequence.request->uses_beams()) {
    const auto num_output = static_cast<int32_t>(sequence.output_ids().size());
    return EmitOutput(sequence, {FinishReason::kCancelled, num_output}, vocab_size);
  }
  if (sequence.index >= sequence.request->num_sequences) return;
  SequenceOutput output;
  output.finish = sequence.finish;
  output.sequence_index = sequence.index;
  sequence.request->sink->OnOutput(output);
}

}  // namespace nereid::llm
