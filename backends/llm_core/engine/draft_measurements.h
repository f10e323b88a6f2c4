// What an engine has measured of drafts: how often they are accepted, how long steps and the
// drafter take, and how much time drafts have gained. From this it estimates what the drafts of a
// step would bring and cost. Durations are in seconds. [engine thread]
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backends/llm_core/engine/sequence.h"
#include "backends/llm_core/speculation/acceptance_rates.h"
#include "backends/llm_core/speculation/draft_times.h"
#include "backends/llm_core/speculation/drafter.h"
#include "backends/llm_core/speculation/gain_account.h"
#include "backends/llm_core/speculation/step_costs.h"
#include "backends/llm_core/speculation/tree_yields.h"

namespace nereid::llm {

// A step with drafts, or in which the drafter found none.
struct DraftedStep {
  int32_t num_sequences = 0, num_accepted = 0;
  double seconds = 0.0;   // with the time of the drafter
  double expected = 0.0;  // accepted drafts that its plan expected
};

class DraftMeasurements {
 public:
  // `drafter` is borrowed; null if there is none. `typical_costs`: of StepCosts.
  DraftMeasurements(const Drafter* drafter, const TypicalCosts& typical_costs)
      : drafter_(drafter), costs_(typical_costs) {}

  // --- recording ---

  // The tokens of the contexts of all sequences in the next step.
  void SetContext(int64_t num_tokens) { costs_.SetContext(num_tokens); }
  // A costly drafter took so long for `num_steps` of Drafter::DraftingSteps of so many sequences,
  // after it had caught up with `num_caught_up` tokens.
  void RecordDrafting(int32_t num_sequences, int32_t num_steps, int32_t num_caught_up,
                      double seconds);
  // So many of the drafts of a sequence were accepted.
  void RecordOutcome(SequenceDrafts& drafts, int32_t num_drafts, int32_t num_accepted);
  // These drafts of a sequence's tree were accepted, by their index in the proposal.
  void RecordTree(SequenceDrafts& drafts, int32_t num_drafts, std::span<const int32_t> accepted);
  // A typical step took so long without the drafter, and before it the executor was idle for
  // `idle_seconds` because of speculation. Those are part of `seconds` if the step has drafts.
  void RecordDuration(int32_t num_sequences, int32_t num_drafts, double seconds,
                      double idle_seconds);
  // A step without drafts and without the drafter, and the idle time before it.
  void RecordPlain(double seconds, double idle_seconds);
  // Returns the seconds that the step gained, negative if it lost some; 0 if no step without drafts
  // was measured.
  double RecordDrafted(const DraftedStep& step);

  // --- estimates ---

  const StepCosts& costs() const { return costs_; }
  const DraftTimes& draft_times() const { return draft_times_; }
  const GainAccount& account() const { return account_; }
  GainAccount& account() { return account_; }
  // Whether enough outcomes of a class of proposals are known to rely on them.
  bool IsAcceptanceMeasured(int32_t match_class = 0) const {
    return acceptance_.IsMeasured(match_class);
  }
  // How likely the drafts of the sequence are accepted. Of chains, the probability of each draft
  // behind an accepted one; of trees, the number of accepted drafts in units of that of all
  // sequences. `is_long_ago`: what was measured of the sequence alone is old.
  float RateOf(const Sequence& sequence, bool is_long_ago) const;
  // The accepted drafts that are expected of the first `num_drafts` of a sequence with this rate.
  double ExpectedAccepted(const SequenceDrafts& drafts, float rate, int32_t num_drafts) const;
  // What remains of such a sum over the sequences of a step, since it was too high lately.
  double Corrected(double expected) const;
  // The tokens of the sequence that a costly drafter has not seen, but for those of the last step.
  // One that reads hidden states only catches up with tokens whose states it got.
  int32_t NumBehind(const Sequence& sequence) const;
  // The time to catch up with them.
  double CatchUpSeconds(const Sequence& sequence) const {
    return NumBehind(sequence) * draft_times_.OfUnseen();
  }
  // The time of the drafter for up to `longest` drafts of each of so many sequences; 0 if it is not
  // costly. `plain`: the duration of a step without drafts.
  double DraftingSeconds(int32_t num_drafting, int32_t longest, double plain) const;

 private:
  bool is_costly() const { return drafter_ != nullptr && drafter_->is_costly(); }
  bool proposes_trees() const { return drafter_ != nullptr && drafter_->proposes_trees(); }
  // Of steps with as many drafts of a sequence as this one.
  const TreeYields& YieldsOf(const SequenceDrafts& drafts, int32_t num_drafts) const {
    return yields_[num_drafts > drafts.num_direct ? 1 : 0];
  }

  const Drafter* const drafter_;
  AcceptanceRates acceptance_{AcceptanceRates::kMemoryOfEngine};  // of all sequences
  // For a drafter of trees: of steps with direct drafts alone, and of steps with others.
  std::array<TreeYields, 2> yields_;
  StepCosts costs_;
  DraftTimes draft_times_;
  GainAccount account_;
  // Sums of recent steps: how many drafts were expected to be accepted, and how many were.
  double sum_expected_ = 0.0;
  double sum_accepted_ = 0.0;
};

}  // namespace nereid::llm
