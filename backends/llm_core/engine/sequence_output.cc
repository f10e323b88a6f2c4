// Rows of logits, and outputs.
#include "backends/llm_core/engine/sequence_output.h"

#include <algorithm>
#include <utility>

namespace nereid::llm {

void KeepRows(const BatchSequence& entry, size_t i, const StepResult& result, int32_t vocab_size,
              Sequence& sequence) {
  SequenceRows& rows = *sequence.rows;
  const GenerationRequest& request = *sequence.request;
  if (entry.num_logits == entry.num_tokens && rows.num_prompt_rows < sequence.num_prompt) {
    // Of a recomputed sequence, those before were kept the first time, those behind are output.
    const int32_t skip = rows.num_prompt_rows - entry.num_cached;
    const int32_t end = std::min(entry.num_tokens, sequence.num_prompt - entry.num_cached);
    if (request.want_context_logits && skip < end) {
      const auto first = result.logits[i].begin();
      rows.context_logits.insert(rows.context_logits.end(), first + ptrdiff_t{skip} * vocab_size,
                                 first + ptrdiff_t{end} * vocab_size);
    }
    // The last prompt token is followed by output.
    const int32_t last = std::min(end, sequence.num_prompt - 1 - entry.num_cached);
    if (request.want_prompt_log_probs && skip < last) {
      const std::vector<float>& found = result.prompt_log_probs[i];
      rows.prompt_log_probs.insert(rows.prompt_log_probs.end(), found.begin() + skip,
                                   found.begin() + last);
    }
    rows.num_prompt_rows = std::max(rows.num_prompt_rows, entry.num_cached + end);
  }
  if (entry.samples && request.want_generation_logits) {
    const std::vector<float>& logits = result.logits[i];
    if (request.uses_beams()) {
      rows.step_logits =
          std::make_shared<const std::vector<float>>(logits.end() - vocab_size, logits.end());
      return;
    }
    rows.generation_logits.insert(rows.generation_logits.end(), logits.end() - vocab_size,
                                  logits.end());
  }
}

void PutOut(Sequence& sequence, int32_t num_visible, int32_t vocab_size) {
  if (num_visible <= sequence.num_released && sequence.finish == FinishReason::kNone) return;
  Output output;
  output.ids = sequence.output_ids().first(num_visible);
  output.first_new = sequence.num_released;
  output.finish = sequence.finish;
  if (sequence.request->sampling.want_log_probs) {
    output.log_probs = std::span<const float>(sequence.log_probs).first(num_visible);
    for (int32_t i = sequence.num_released; i < num_visible; ++i) {
      sequence.cum_log_prob += sequence.log_probs[i];
    }
    output.cum_log_prob = sequence.cum_log_prob;
  }
  output.sequence_index = sequence.index;
  output.num_reused_blocks = sequence.num_reused_blocks;
  output.num_new_blocks = sequence.num_new_blocks;
  if (sequence.rows != nullptr) {
    const SequenceRows& rows = *sequence.rows;
    if (!std::exchange(sequence.was_put_out, true)) {
      output.prompt_log_probs = rows.prompt_log_probs;
      output.context_logits = rows.context_logits;
    }
    const size_t num_logits = static_cast<size_t>(num_visible) * vocab_size;
    if (rows.generation_logits.size() >= num_logits) {
      output.generation_logits = std::span<const float>(rows.generation_logits).first(num_logits);
    }
  }
  sequence.num_released = num_visible;
  sequence.request->sink->OnOutput(output);
}

}  // namespace nereid::llm
