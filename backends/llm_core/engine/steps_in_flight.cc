// Bookkeeping of overlapping steps.
#include "backends/llm_core/engine/steps_in_flight.h"

#include <utility>

#include "backends/llm_core/engine/executor.h"

namespace nereid::llm {
namespace {

// At most two steps are in flight. So the first token that is replaced could be one of the next
// three, before the engine knows the token before it.
bool IsAlmostSpent(const Sequence& sequence) {
  constexpr int64_t kNumSteps = 3;
  return sequence.has_reasoning_budget && sequence.reasoning->IsDueWithin(kNumSteps);
}

}  // namespace

void StepsInFlight::Add(const StepBatch& batch, const std::vector<Sequence*>& sequences,
                        bool overlaps, std::chrono::steady_clock::time_point began,
                        std::chrono::steady_clock::time_point submitted) {
  StepInFlight& step = steps_.emplace_back();
  step.began = began;
  step.submitted = submitted;
  bool speculates = false;
  step.sequences = sequences;
  step.may_overlap = overlaps;
  step.is_decode = batch.token_ids.size() == sequences.size();
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    ++sequence.num_in_flight;
    step.num_drafts += batch.entries[i].num_draft_tokens;
    step.samples.push_back(batch.entries[i].samples);
    // Sequences with beams or kept logits, and sampling rules that read the output, need the result
    // before the next step can be planned. So does a drafter, while drafts pay. So does a grammar:
    // its mask depends on the token. The masks themselves are computed while the model runs, so
    // that a grammar costs the time from Collect to the next launch, in which the device is idle,
    // for the whole batch. So does a reasoning budget that is almost spent, because it replaces
    // sampled tokens.
    speculates |= sequence.drafts != nullptr &&
                  (!sequence.drafts->is_idle() || sequence.drafts->reads_hidden_states);
    step.may_overlap &= !sequence.has_beams_or_logits &&
                        !(step.samples[i] && (sequence.has_grammar || IsAlmostSpent(sequence) ||
                                              sequence.sampling().reads_output()));
  }
  step.is_kept_by_drafts = step.may_overlap && speculates;
  step.may_overlap &= !speculates;
  step.num_tokens = static_cast<int32_t>(batch.token_ids.size());
  step.is_prefill =
      batch.token_ids.size() >= 2 * (sequences.size() + static_cast<size_t>(step.num_drafts));
  step.decodes_with_drafts =
      batch.token_ids.size() == sequences.size() + static_cast<size_t>(step.num_drafts);
}

void StepsInFlight::AddPendingTokens() {
  const StepInFlight& step = steps_.back();
  for (size_t i = 0; i < step.sequences.size(); ++i) {
    if (!step.samples[i]) continue;
    Sequence& sequence = *step.sequences[i];
    sequence.token_ids.push_back(PendingTokenId(sequence.slot));
    ++sequence.num_pending;
  }
}

StepInFlight StepsInFlight::TakeCompleted() {
  StepInFlight step = std::move(steps_.front());
  steps_.pop_front();
  for (Sequence* sequence : step.sequences) --sequence->num_in_flight;
  return step;
}

void StepsInFlight::Retire(std::vector<std::unique_ptr<Sequence>> removed) {
  for (std::unique_ptr<Sequence>& sequence : removed) {
    if (sequence->num_in_flight == 0) continue;
    sequence->request.reset();
    retired_.push_back(std::move(sequence));
  }
}

void StepsInFlight::FreeRetired() {
  std::erase_if(retired_, [](const auto& sequence) { return sequence->num_in_flight == 0; });
}

void StepsInFlight::Clear() {
  steps_.clear();
  retired_.clear();
}

}  // namespace nereid::llm
