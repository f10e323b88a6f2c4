// What became of drafts: the time that they took, acceptance, and the hidden states that a step
// returned.
#include <algorithm>
#include <utility>

#include "backends/llm_core/engine/draft_planner.h"
#include "backends/llm_core/speculation/draft_tree.h"

namespace nereid::llm {
namespace {

// The most tokens that a drafter is taken to catch up with, of those whose hidden states it got.
constexpr int32_t kMostObserved = 1024;

}  // namespace

void DraftPlanner::RecordDrafting(double seconds) {
  draft_seconds_ = seconds;
  int32_t length = 0, num_caught_up = 0;
  for (size_t i = 0; i < queries_.size(); ++i) {
    const auto num_drafts = static_cast<int32_t>(queries_[i].drafts->size());
    const int32_t num_steps = queries_[i].num_steps;
    length =
        std::max(length, num_steps > 0 ? num_steps : options_.drafter->DraftingSteps(num_drafts));
    num_caught_up += queries_[i].num_caught_up;
    drafting_[i]->drafts->num_seen = static_cast<int32_t>(queries_[i].tokens.size());
    drafting_[i]->drafts->num_observed = 0;
  }
  measured_.RecordDrafting(static_cast<int32_t>(queries_.size()), length, num_caught_up, seconds);
}

void DraftPlanner::RecordStep(const StepOutcome& step) {
  const double draft_seconds = std::exchange(draft_seconds_, 0.0);
  const double expected = std::exchange(expected_, 0.0);
  if (!step.is_typical && step.num_drafts == 0) return;
  const double idle = std::max(0.0, step.idle_seconds - draft_seconds);
  if (step.is_typical) {
    measured_.RecordDuration(step.num_sequences, step.num_drafts, step.seconds - draft_seconds,
                             idle);
  }
  if (step.num_drafts == 0 && draft_seconds == 0.0) {
    measured_.RecordPlain(step.seconds, idle);
    trials_.RecordPlain(idle);
    return;
  }
  const double gained = measured_.RecordDrafted({.num_sequences = step.num_sequences,
                                                 .num_accepted = step.num_accepted,
                                                 .seconds = step.seconds,
                                                 .expected = expected});
  trials_.RecordDrafted(step.num_drafts, step.num_accepted, gained);
}

void DraftPlanner::RecordTree(SequenceDrafts& drafts, int32_t num_drafts, size_t i,
                              const StepResult& result) {
  accepted_.clear();
  for (size_t n = 0; n < result.accepted[i].size(); ++n) {
    accepted_.push_back(AcceptedDraft(result, i, n));
  }
  measured_.RecordTree(drafts, num_drafts, accepted_);
}

void DraftPlanner::RecordVerified(Sequence& sequence, int32_t num_drafts, size_t i,
                                  const StepResult& result) {
  SequenceDrafts& drafts = *sequence.drafts;
  if (proposes_trees() && drafts.are_of_drafter) RecordTree(drafts, num_drafts, i, result);
  if (drafts.returns_row_tokens && i < result.row_tokens.size()) {
    options_.drafter->ObserveRowTokens(drafts.state, result.row_tokens[i]);
  }
  RecordAccepted(sequence, num_drafts, static_cast<int32_t>(result.accepted[i].size()));
}

void DraftPlanner::RecordAccepted(Sequence& sequence, int32_t num_drafts, int32_t num_accepted) {
  SequenceDrafts& drafts = *sequence.drafts;
  drafts.num_drafted += num_drafts;
  drafts.num_accepted += num_accepted;
  measured_.RecordOutcome(drafts, num_drafts, num_accepted);
  if (drafts.are_of_drafter) trials_.RecordOutcome(num_drafts, num_accepted);
  SpeculationCounts& counts = drafts.are_of_client ? client_counts_ : counts_;
  counts.num_drafted += num_drafts;
  counts.num_accepted += num_accepted;
  ++counts.num_verified_chains;
}

void DraftPlanner::RecordHiddenStates(Sequence& sequence, const BatchEntry& entry, size_t i,
                                      const StepResult& result) {
  const size_t num_accepted = i < result.accepted.size() ? result.accepted[i].size() : 0;
  const int32_t first_draft = entry.num_tokens - entry.num_draft_tokens;
  HiddenRows rows;
  rows.first_row = entry.first_token;
  rows.num_rows = first_draft + static_cast<int32_t>(num_accepted);
  step_rows_.clear();
  if (!entry.draft_parents.empty() && num_accepted > 0) {
    for (int32_t row = 0; row < first_draft; ++row) step_rows_.push_back(entry.first_token + row);
    for (size_t n = 0; n < num_accepted; ++n) {
      step_rows_.push_back(entry.first_token + first_draft + AcceptedDraft(result, i, n));
    }
    rows.step_rows = step_rows_;
  }
  if (i < result.hidden_states.size()) {
    rows.values = ValuesOf(rows, entry, result.hidden_states[i]);
  }
  sequence.drafts->num_observed =
      std::min(sequence.drafts->num_observed + rows.num_rows, kMostObserved);
  options_.drafter->Observe(sequence.drafts->state, entry.num_cached, rows);
}

std::span<const float> DraftPlanner::ValuesOf(const HiddenRows& rows, const BatchEntry& entry,
                                              std::span<const float> values) {
  const size_t row_size = values.size() / static_cast<size_t>(entry.num_tokens);
  if (rows.step_rows.empty()) return values.first(row_size * static_cast<size_t>(rows.num_rows));
  hidden_.clear();
  for (const int32_t row : rows.step_rows) {
    const auto of_row = values.subspan(row_size * static_cast<size_t>(row - entry.first_token));
    hidden_.insert(hidden_.end(), of_row.begin(),
                   of_row.begin() + static_cast<ptrdiff_t>(row_size));
  }
  return hidden_;
}

void DraftPlanner::RecordUnverified(Sequence& sequence, int32_t token) {
  SequenceDrafts& drafts = *sequence.drafts;
  if (drafts.ids.empty()) return;
  const int32_t found = FindChild(drafts.ids, drafts.parents, kTreeRoot, token);
  const int32_t num_accepted = found == kNoChild ? 0 : 1;
  measured_.RecordOutcome(drafts, 1, num_accepted);
  if (num_accepted == 0 || !drafts.parents.empty()) {
    drafts.ids.clear();
    drafts.parents.clear();
  } else {
    drafts.ids.erase(drafts.ids.begin());
  }
}

}  // namespace nereid::llm
