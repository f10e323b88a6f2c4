// Chooses how many drafts of each sequence a step verifies, so that it yields more tokens a second
// than a step without drafts:
//
// 1. A step without drafts is due from time to time, since all durations are compared with it
//    (StepCosts::NeedsPlainStep). Then no sequence gets any.
// 2. The drafts of all sequences together are at most those for which the step has room, and at
//    most StepCosts::MostDrafts; few while nothing is known of a costly drafter's acceptance.
//    A sequence with which a costly drafter would catch up for too long gets none.
// 3. Candidates give each sequence a length by limits that all share: of chains, the most drafts
//    and the least probability with which a draft is reached; of trees, the most drafts.
// 4. The yield of a candidate is the number of tokens that are expected of the step, divided by its
//    duration with that of the drafter, where a step without drafts has 1. The candidate with the
//    greatest yield is chosen if it gains at least 3 %, and if the time that it loses where no
//    draft is accepted may be risked (GainAccount).
// 5. Where none is chosen, a few drafts of a few sequences may be verified as a trial, to measure
//    whether drafts would pay again (DraftTrials).
//
// Where a draft model would have to read a long prompt, trials and catching up that would cost too
// much now are saved for (GainAccount::SaveFor).
// Where the drafts are too few for all sequences, these take turns. [engine thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/engine/draft_measurements.h"
#include "backends/llm_core/engine/draft_trials.h"
#include "backends/llm_core/engine/sequence.h"
#include "backends/llm_core/speculation/drafter.h"

namespace nereid::llm {

class DraftLengthChooser {
 public:
  // Everything is borrowed. `drafter` is null if there is none; nothing is chosen then.
  DraftLengthChooser(const Drafter* drafter, DraftMeasurements& measured, DraftTrials& trials)
      : drafter_(drafter), measured_(measured), trials_(trials) {}

  // Lowers num_drafts of these sequences, which is at first the most that each may have, to what
  // pays. Returns how many drafts are expected to be accepted. `num_decoding`: the sequences of the
  // step, with and without drafts. `budget`: the most drafts of all. `num_verified`: the drafts
  // that the engine has verified so far.
  double Choose(std::span<Sequence* const> drafting, int32_t num_decoding, int32_t budget,
                int64_t num_verified);

 private:
  // Numbers of drafts for the sequences in drafting_, and what is expected of them.
  struct Choice {
    std::vector<uint8_t> lengths;  // parallel to drafting_
    double yield = 1.0;            // tokens a second, in units of a step without drafts
    double expected = 0.0;         // accepted drafts
  };

  // Lets no sequence have drafts whose end is too near for a costly drafter to catch up with it,
  // and none with which it catches up in a later step, because all together take too long.
  void SkipCostlyCatchUps();
  // Whether a step may lose so many seconds because a drafter catches up.
  bool MayCatchUp(double seconds) const;
  // Saves for what is put off. Not of a drafter that reads hidden states: it has at most those of
  // the last steps to catch up with, and what it may cost stays small.
  void SaveFor(double seconds);

  void ConsiderChains(int32_t most_together, Choice& choice);
  void ConsiderTrees(int32_t most_together, Choice& choice);
  // Sets lengths_ to drafts that are reached with a probability of at least `least`, up to `most` a
  // sequence and `most_together`.
  void SetLengths(float least, int32_t most, int32_t most_together);
  // Sets lengths_ to the first `most` drafts of each sequence, up to `most_together`. With
  // `only_direct`, up to the sequence's num_direct.
  void SetTreeSizes(int32_t most, bool only_direct, int32_t most_together);
  // Makes lengths_ the choice if it yields more and may be risked.
  void Consider(Choice& choice) const;
  // Whether drafts of `num_drafting` sequences, which are expected to pay, may be tried if they
  // lose `loss` seconds otherwise. `is_measured`: acceptance and the step's cost are.
  bool MayTry(double loss, int32_t num_drafting, bool is_measured) const;

  // Chooses a few drafts of some sequences, to measure again whether drafting would pay.
  void ConsiderTrial(Choice& choice);
  // The sequences in drafting_ that may be tried, by index.
  std::vector<size_t> SequencesToTry() const;
  // The expected time of a step that tries these.
  double TrialSeconds(std::span<const size_t> tried) const;
  // The drafts of a sequence in a trial.
  int32_t TrialLength(const Sequence& sequence) const;

  // Sets the sequences' num_drafts, and the sequence that is considered first in the next step.
  void Apply(const Choice& choice);
  // The index of the sequence in drafting_ that is considered as number `n`.
  size_t InTurn(size_t n) const { return (first_considered_ + n) % drafting_.size(); }

  const Drafter* const drafter_;
  DraftMeasurements& measured_;  // saves for what is put off
  DraftTrials& trials_;
  // The index in drafting_ of the sequence that is considered first. Where drafts are too few for
  // all, it is the one behind the last that got some.
  size_t first_considered_ = 0;

  // During Choose:
  std::span<Sequence* const> drafting_;
  int32_t num_decoding_ = 0;
  double plain_seconds_ = 0.0;    // of a step without drafts; 0: not measured
  std::vector<float> rates_;      // parallel to drafting_: DraftMeasurements::RateOf
  std::vector<uint8_t> longest_;  // parallel to drafting_: the longest drafts
  std::vector<uint8_t> lengths_;  // parallel to drafting_: of a candidate
};

}  // namespace nereid::llm
