// Decides how many draft tokens each sequence gets in the next step, and measures what became of
// them. Draft tokens are used only while the measured step durations and acceptance make the step
// yield more tokens a second than without them. What is tried without such measurements costs a
// bounded part of the time (GainAccount). [engine thread]
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/draft_trials.h"
#include "backends/llm_core/engine/sequence.h"
#include "backends/llm_core/speculation/draft_times.h"
#include "backends/llm_core/speculation/drafter.h"
#include "backends/llm_core/speculation/gain_account.h"
#include "backends/llm_core/speculation/step_costs.h"
#include "backends/llm_core/speculation/tree_yields.h"

namespace nereid::llm {

struct SpeculationOptions {
  std::shared_ptr<Drafter> drafter;  // null: no speculation
  // Of a sequence in one step; 1 to kMaxDraftTokens, or for a drafter of trees to kMaxTreeDrafts.
  int32_t max_draft_tokens = 8;
  // False: every proposal is verified at full length, whatever it costs.
  bool adapts_length = true;
  // Set by the engine: ExecutorFeatures::draft_masks. Without it, sequences with a grammar have no
  // drafts.
  bool masks_drafts = false;
  bool verifies_trees = false;  // set by the engine: ExecutorFeatures::draft_trees
  // Set by the engine: ExecutorFeatures::max_hidden_state_sequences. While more sequences run, a
  // drafter that reads hidden states proposes nothing.
  int32_t max_hidden_state_sequences = 0;
};

struct SpeculationCounts {
  int64_t num_drafted = 0;          // draft tokens that were verified
  int64_t num_accepted = 0;         // of these
  int64_t num_verified_chains = 0;  // entries with draft tokens

  // Accepted drafts of an entry with draft tokens; 0 if there was none.
  double MeanAcceptedLength() const {
    if (num_verified_chains == 0) return 0.0;
    return static_cast<double>(num_accepted) / static_cast<double>(num_verified_chains);
  }
};

class DraftPlanner {
 public:
  // `is_supported`: the executor verifies drafts. `typical_costs`: of StepCosts. `now`: the time in
  // seconds, which measures what drafting takes; by default it takes none.
  DraftPlanner(
      SpeculationOptions options, bool is_supported, const TypicalCosts& typical_costs = {},
      std::function<double()> now = [] { return 0.0; })
      : options_(std::move(options)),
        is_supported_(is_supported),
        now_(std::move(now)),
        costs_(typical_costs),
        trials_(options_.drafter.get(), options_.adapts_length) {}

  // Whether any sequence may have drafts, of the drafter or of a client.
  bool is_on() const { return is_supported_; }
  // Prepares a sequence that enters the scheduler.
  void Add(Sequence& sequence) const;
  // Sets the drafts of all running sequences that decode next. A sequence whose newest token is
  // pending gets none, but its proposal decides whether it stays idle (SequenceDrafts). `budget`:
  // the most drafts of all sequences together.
  void Plan(std::span<const std::unique_ptr<Sequence>> running, int32_t budget = INT32_MAX);
  // Called when the result of a step is known, for each sequence with `num_drafts` > 0 drafts in
  // it, before its tokens are applied. `i`: the index of its entry.
  void RecordVerified(Sequence& sequence, int32_t num_drafts, size_t i, const StepResult& result);
  // Called by RecordVerified: counts the accepted ones of a sequence's drafts.
  void RecordAccepted(Sequence& sequence, int32_t num_drafts, int32_t num_accepted);
  // Called for each entry of a step with hidden states, before its tokens are applied. `i`: its
  // index in the result.
  void RecordHiddenStates(Sequence& sequence, const BatchEntry& entry, size_t i,
                          const StepResult& result);
  // Called after the last entry of such a step.
  void FinishHiddenStates() { options_.drafter->FinishObserving(); }
  // Called for a sampled token at which the sequence had no draft in the step: measures what the
  // proposal would have brought. The tokens come in the order of the sequence.
  void RecordUnverified(Sequence& sequence, int32_t token);
  // A step whose entries all decode, and what became of its drafts.
  struct StepOutcome {
    int32_t num_sequences = 0, num_drafts = 0, num_accepted = 0;
    double seconds = 0.0;       // with the time of Plan
    double idle_seconds = 0.0;  // of these: before the step began, because speculation kept it from
                                // overlapping with the step before
    // A step that is not typical (StepResult) says nothing about the cost of later ones, but what
    // its drafts lost counts, since the first steps of many sizes may follow each other.
    bool is_typical = true;
  };
  void RecordStep(const StepOutcome& step);
  const SpeculationCounts& counts() const { return counts_; }  // of the drafter and of grammars
  const SpeculationCounts& client_counts() const { return client_counts_; }

 private:
  // Numbers of drafts for the sequences in drafting_, and what is expected of them.
  struct Choice {
    std::vector<uint8_t> lengths;  // parallel to drafting_
    double yield = 1.0;            // tokens a second, in units of a step without drafts
    double expected = 0.0;         // accepted drafts
  };

  // Whether the drafter may see the sequence's tokens.
  bool MayPropose(const Sequence& sequence) const;
  // Fills drafting_ with the sequences for which the drafter is asked, each with its most drafts in
  // num_drafts, and decides whose hidden states are read. Returns how many sequences decode.
  int32_t ChooseSequences(std::span<const std::unique_ptr<Sequence>> running);
  // The part for one sequence that decodes. With `may_propose`, the drafter may be asked.
  void AllowDrafts(Sequence& sequence, bool may_propose);
  // Makes the rest of the client's own drafts the sequence's. Returns false if there is none, or
  // the output differs from them.
  static bool TakeClientDrafts(Sequence& sequence, int32_t most);
  // Hidden states are read of all sequences again once the chosen drafts are more than a trial.
  void EndRest();
  // Asks the drafter for up to num_drafts drafts of each sequence in drafting_. Removes those that
  // get none.
  void Propose();
  DraftQuery QueryFor(Sequence& sequence) const;
  void TakeProposal(const DraftQuery& query, Sequence& sequence) const;
  // Measures a call of a costly drafter.
  void RecordDrafting(double seconds);
  // Lowers the sequences' num_drafts to what pays.
  void ChooseLengths(int32_t num_decoding, int32_t budget);
  void ConsiderChains(int32_t num_decoding, int32_t most_together, Choice& choice);
  void ConsiderTrees(int32_t num_decoding, int32_t most_together, Choice& choice);
  // Sets lengths_ to drafts that are reached with a probability of at least `least`, up to `most` a
  // sequence and `most_together`.
  void SetLengths(float least, int32_t most, int32_t most_together);
  // Sets lengths_ to the first `most` drafts of each sequence, up to `most_together`. With
  // `only_direct`, up to the sequence's num_direct.
  void SetTreeSizes(int32_t most, bool only_direct, int32_t most_together);
  // The number of accepted drafts that is expected of the first `num_drafts` of drafting_[i].
  double Expected(size_t i, int32_t num_drafts) const;
  // The values of these rows, side by side. `values`: those of all tokens of the entry.
  std::span<const float> ValuesOf(const HiddenRows& rows, const BatchEntry& entry,
                                  std::span<const float> values);
  void RecordYield(SequenceDrafts& drafts, int32_t num_drafts, size_t i, const StepResult& result);
  // Leaves out the sequences whose end is too near for a costly drafter to catch up with them, and
  // those that it catches up with in a later step, because all together take too long.
  void SkipCostlyCatchUps(int32_t num_decoding);
  // Whether a step may lose so many seconds because a drafter catches up. `plain`: of a step
  // without drafts.
  bool MayCatchUp(double seconds, double plain) const;
  // The tokens that a costly drafter has not seen, but for those of the last step. One that reads
  // hidden states only catches up with those that it got.
  int32_t NumBehind(const Sequence& sequence) const;
  // The expected time to catch up with them.
  double CatchUpSeconds(const Sequence& sequence) const;
  // The expected time of a costly drafter for up to `longest` drafts of so many sequences. `plain`:
  // of a step without drafts.
  double DraftingSeconds(int32_t num_drafting, int32_t longest, double plain) const;
  // Makes lengths_ the choice if it yields more and may be risked.
  void Consider(int32_t num_decoding, Choice& choice) const;
  // Whether drafts of `num_drafting` sequences, which are expected to pay, may be tried if they
  // lose `loss` seconds otherwise. `is_measured`: acceptance and the step's cost are.
  bool MayTry(double loss, double plain, int32_t num_drafting, bool is_measured) const;
  // Chooses a few drafts of some sequences, to measure again whether drafting would pay.
  void ConsiderTrial(int32_t num_decoding, Choice& choice);
  // The index of the sequence in drafting_ that is considered as number `n`.
  size_t InTurn(size_t n) const { return (first_considered_ + n) % drafting_.size(); }
  // The sequences in drafting_ that may be tried, by index.
  std::vector<size_t> SequencesToTry() const;
  // The expected time of a step that tries these.
  double TrialSeconds(int32_t num_decoding, std::span<const size_t> tried) const;
  // The drafts of a sequence in a trial.
  int32_t TrialLength(const Sequence& sequence) const;
  // The probability with which a draft of the sequence is accepted.
  float RateOf(const Sequence& sequence) const;
  // What the trees of a sequence yield, in units of what those of all sequences do.
  static float TreeFactorOf(const Sequence& sequence);
  bool proposes_trees() const {
    return options_.drafter != nullptr && options_.drafter->proposes_trees();
  }
  bool is_costly() const { return options_.drafter != nullptr && options_.drafter->is_costly(); }
  // Whether the drafter's acceptance is measured only by verifying its drafts.
  bool needs_trials() const { return is_costly() || proposes_trees(); }
  // The yields of steps with as many drafts of a sequence as this one.
  TreeYields& YieldsOf(const SequenceDrafts& drafts, int32_t num_drafts) {
    return yields_[num_drafts > drafts.num_direct ? 1 : 0];
  }

  SpeculationOptions options_;
  const bool is_supported_;
  const std::function<double()> now_;
  AcceptanceRates acceptance_{AcceptanceRates::kMemoryOfEngine};  // of all sequences
  // For a drafter of trees: of steps with direct drafts alone, and of steps with others.
  std::array<TreeYields, 2> yields_;
  StepCosts costs_;
  DraftTimes draft_times_;
  GainAccount account_;
  DraftTrials trials_;
  SpeculationCounts counts_;
  SpeculationCounts client_counts_;
  double draft_seconds_ = 0.0;  // that the drafter took in the last Plan
  double expected_ = 0.0;       // accepted drafts that the last Plan expects
  // The index in drafting_ of the sequence that is considered first. Where drafts are too few for
  // all, it is the one behind the last that got some, so that sequences take turns.
  size_t first_considered_ = 0;
  // Sums of recent steps: how many drafts were expected to be accepted, and how many were.
  double sum_expected_ = 0.0;
  double sum_accepted_ = 0.0;
  std::vector<Sequence*> drafting_;  // scratch memory
  std::vector<float> rates_;         // parallel to drafting_; of trees: TreeFactorOf
  std::vector<uint8_t> longest_;     // parallel to drafting_: the longest drafts
  std::vector<uint8_t> lengths_;     // parallel to drafting_
  std::vector<DraftQuery> queries_;
  std::vector<int32_t> accepted_;   // scratch memory
  std::vector<int32_t> step_rows_;  // scratch memory
  std::vector<float> hidden_;       // scratch memory
};

}  // namespace nereid::llm
