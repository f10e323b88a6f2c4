// See batch_entry.h.
#include "backends/llm_core/engine/batch_entry.h"

#include <algorithm>
#include <span>

#include "backends/llm_core/engine/beam_search.h"

namespace nereid::llm {
namespace {

// What beams, logits and prompt log probabilities need beyond the plain entry.
void AskForMore(const Sequence& sequence, BatchSequence& entry) {
  const GenerationRequest& request = *sequence.request;
  if (entry.samples && request.uses_beams()) {
    entry.num_candidates = BeamSearch::NumCandidates(request.beams, request.stop);
  }
  if (sequence.rows == nullptr) return;
  entry.returns_logits = entry.samples && request.want_generation_logits;
  if (!request.needs_whole_prompt() || sequence.rows->num_prompt_rows >= sequence.num_prompt) {
    return;
  }
  entry.num_logits = entry.num_tokens;
  entry.returns_logits |= request.want_context_logits;
  if (!request.want_prompt_log_probs) return;
  const int32_t first = sequence.num_cached + 1;
  const int32_t count = std::min(entry.num_tokens, sequence.num_tokens() - first);
  entry.next_ids = std::span<const int32_t>(sequence.token_ids).subspan(first, count);
}

}  // namespace

void AppendEntry(const Sequence& sequence, int32_t num_tokens, Batch& batch) {
  const bool is_last_chunk = sequence.num_cached + num_tokens == sequence.num_tokens();
  BatchSequence& entry = batch.sequences.emplace_back();
  entry.slot = sequence.slot;
  entry.first_token = static_cast<int32_t>(batch.token_ids.size());
  entry.num_tokens = num_tokens;
  entry.num_cached = sequence.num_cached;
  entry.is_long = sequence.is_long;
  entry.num_prompt = sequence.num_prompt;
  entry.block_table = sequence.block_table;
  entry.num_logits = is_last_chunk ? 1 : 0;
  entry.samples = is_last_chunk;
  if (is_last_chunk) {
    entry.sampling.params = &sequence.sampling();
    entry.sampling.token_ids = sequence.token_ids;
    entry.sampling.num_prompt = sequence.num_prompt;
    if (sequence.num_tokens() < sequence.num_min_tokens) {
      entry.sampling.banned_ids = sequence.request->stop.end_ids;
    }
  }
  if (num_tokens == 1) {
    batch.token_ids.push_back(sequence.token_ids[sequence.num_cached]);
  } else {
    const auto first = sequence.token_ids.begin() + sequence.num_cached;
    batch.token_ids.insert(batch.token_ids.end(), first, first + num_tokens);
  }
  if (sequence.is_special) AskForMore(sequence, entry);
}

}  // namespace nereid::llm
