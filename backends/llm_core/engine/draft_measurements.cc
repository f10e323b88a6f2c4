// Moving averages of the outcomes of drafts, and the estimates that follow from them.
#include "backends/llm_core/engine/draft_measurements.h"

#include <algorithm>

namespace nereid::llm {
namespace {

// Acceptance of a class of proposals before any is measured. Longer matches have higher classes.
constexpr std::array<float, AcceptanceRates::kNumClasses> kPriors = {0.4f, 0.6f, 0.75f, 0.85f};
constexpr float kEngineWeight = 4.0f;    // outcomes that the prior of the engine's rate weighs
constexpr float kSequenceWeight = 3.0f;  // outcomes that the engine's rate weighs for a sequence
// The drafts that the sums of expected and accepted drafts are taken to have before any is counted.
constexpr double kPriorSum = 4.0;
// How much the sums of expected and accepted drafts keep in a step with drafts, and in one without.
constexpr double kMemoryOfSums = 0.95;
constexpr double kPlainMemoryOfSums = 0.99;
// How much an acceptance that is measured only by verifying drafts keeps in a step without drafts.
constexpr float kPlainMemoryOfRates = 0.998f;
// How much the sums of a sequence keep in a step with a tree, and the accepted drafts that the
// yields of all sequences weigh for it.
constexpr float kMemoryOfTreeSums = 0.9f;
constexpr float kTreeWeight = 2.0f;
// What a draft of a costly drafter takes before any was measured, in units of a plain step.
constexpr double kGuessedDraft = 0.1;

}  // namespace

void DraftMeasurements::RecordDrafting(int32_t num_sequences, int32_t num_steps,
                                       int32_t num_caught_up, double seconds) {
  if (num_caught_up > 0) {
    draft_times_.RecordCatchUp(num_sequences, num_steps, num_caught_up, seconds);
  } else if (num_steps > 0) {
    draft_times_.Record(num_sequences, num_steps, seconds);
  }
}

void DraftMeasurements::RecordOutcome(SequenceDrafts& drafts, int32_t num_drafts,
                                      int32_t num_accepted) {
  drafts.acceptance.Record(drafts.match_class, num_drafts, num_accepted);
  acceptance_.Record(drafts.match_class, num_drafts, num_accepted);
}

void DraftMeasurements::RecordTree(SequenceDrafts& drafts, int32_t num_drafts,
                                   std::span<const int32_t> accepted) {
  TreeYields& yields = yields_[num_drafts > drafts.num_direct ? 1 : 0];
  drafts.sum_promised =
      kMemoryOfTreeSums * drafts.sum_promised + static_cast<float>(yields.Of(num_drafts));
  drafts.sum_accepted =
      kMemoryOfTreeSums * drafts.sum_accepted + static_cast<float>(accepted.size());
  yields.Record(num_drafts, accepted);
}

void DraftMeasurements::RecordDuration(int32_t num_sequences, int32_t num_drafts, double seconds,
                                       double idle_seconds) {
  // Without drafts, the step would have overlapped with the one before.
  costs_.Record(num_sequences, num_drafts, seconds - (num_drafts == 0 ? idle_seconds : 0.0));
  if (idle_seconds > 0.0) costs_.RecordIdle(num_sequences, idle_seconds);
}

void DraftMeasurements::RecordPlain(double seconds, double idle_seconds) {
  sum_expected_ *= kPlainMemoryOfSums;
  sum_accepted_ *= kPlainMemoryOfSums;
  if (is_costly() || proposes_trees()) acceptance_.Fade(kPlainMemoryOfRates);
  if (proposes_trees()) {
    for (TreeYields& yields : yields_) yields.Fade(kPlainMemoryOfRates);
  }
  account_.RecordPlain(seconds - idle_seconds, idle_seconds);
}

double DraftMeasurements::RecordDrafted(const DraftedStep& step) {
  sum_expected_ *= kMemoryOfSums;
  sum_accepted_ *= kMemoryOfSums;
  if (step.expected > 0.0) {
    sum_expected_ += step.expected;
    sum_accepted_ += step.num_accepted;
  }
  const double plain = costs_.PlainSeconds(step.num_sequences);
  if (plain <= 0.0) return 0.0;
  const int32_t num_tokens = step.num_sequences + step.num_accepted;
  account_.RecordDrafted(step.seconds, plain, step.num_sequences, num_tokens);
  return plain * num_tokens / step.num_sequences - step.seconds;
}

float DraftMeasurements::RateOf(const Sequence& sequence, bool is_long_ago) const {
  const SequenceDrafts& drafts = *sequence.drafts;
  if (proposes_trees())
    return (drafts.sum_accepted + kTreeWeight) / (drafts.sum_promised + kTreeWeight);
  const float engine_rate =
      acceptance_.Estimate(drafts.match_class, kPriors[drafts.match_class], kEngineWeight);
  if (is_long_ago && is_costly()) return engine_rate;
  return drafts.acceptance.Estimate(drafts.match_class, engine_rate, kSequenceWeight);
}

double DraftMeasurements::ExpectedAccepted(const SequenceDrafts& drafts, float rate,
                                           int32_t num_drafts) const {
  if (proposes_trees()) return rate * YieldsOf(drafts, num_drafts).Of(num_drafts);
  double sum = 0.0;
  double all = 1.0;  // the probability that all drafts so far are accepted
  for (int32_t i = 0; i < num_drafts; ++i) sum += all *= rate;
  return sum;
}

double DraftMeasurements::Corrected(double expected) const {
  return expected * std::min(1.0, (sum_accepted_ + kPriorSum) / (sum_expected_ + kPriorSum));
}

int32_t DraftMeasurements::NumBehind(const Sequence& sequence) const {
  const int32_t num_unseen = drafter_->reads_hidden_states()
                                 ? sequence.drafts->num_observed
                                 : sequence.num_known() - sequence.drafts->num_seen;
  return num_unseen > kMostUnseenOfStep ? num_unseen : 0;
}

double DraftMeasurements::DraftingSeconds(int32_t num_drafting, int32_t longest,
                                          double plain) const {
  if (!is_costly()) return 0.0;
  return draft_times_.Of(num_drafting, drafter_->DraftingSteps(longest), kGuessedDraft * plain);
}

}  // namespace nereid::llm
