// Decides which draft tokens each sequence gets in the next step, and measures what became of them.
// Draft tokens are used only while the measured step durations and acceptance make the step yield
// more tokens a second than without them: DraftLengthChooser says how. What is tried without such
// measurements costs a bounded part of the time (GainAccount). [engine thread]
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/draft_length_chooser.h"
#include "backends/llm_core/engine/draft_measurements.h"
#include "backends/llm_core/engine/draft_trials.h"
#include "backends/llm_core/engine/sequence.h"
#include "backends/llm_core/speculation/drafter.h"
#include "backends/llm_core/speculation/step_costs.h"

namespace nereid::llm {

struct SpeculationOptions {
  std::shared_ptr<Drafter> drafter;  // null: no speculation
  // Of a sequence in one step; 1 to kMaxDraftTokens, or for a drafter of trees to kMaxTreeDrafts.
  int32_t max_draft_tokens = kDefaultChainDrafts;
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
        measured_(options_.drafter.get(), typical_costs),
        trials_(options_.drafter.get(), options_.adapts_length),
        lengths_(options_.drafter.get(), measured_, trials_) {}
  DraftPlanner(const DraftPlanner&) = delete;  // lengths_ refers to other members
  DraftPlanner& operator=(const DraftPlanner&) = delete;

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
  // Lowers num_drafts of the sequences in drafting_ to what pays.
  void ChooseLengths(int32_t num_decoding, int32_t budget);
  // Hidden states are read of all sequences again once the chosen drafts are more than a trial.
  void EndRest();
  // Asks the drafter for up to num_drafts drafts of each sequence in drafting_. Removes those that
  // get none.
  void Propose();
  DraftQuery QueryFor(Sequence& sequence) const;
  void TakeProposal(const DraftQuery& query, Sequence& sequence) const;
  // Measures a call of a costly drafter.
  void RecordDrafting(double seconds);
  void RecordTree(SequenceDrafts& drafts, int32_t num_drafts, size_t i, const StepResult& result);
  // The values of these rows, side by side. `values`: those of all tokens of the entry.
  std::span<const float> ValuesOf(const HiddenRows& rows, const BatchEntry& entry,
                                  std::span<const float> values);
  bool proposes_trees() const {
    return options_.drafter != nullptr && options_.drafter->proposes_trees();
  }
  bool is_costly() const { return options_.drafter != nullptr && options_.drafter->is_costly(); }

  SpeculationOptions options_;
  const bool is_supported_;
  const std::function<double()> now_;
  DraftMeasurements measured_;
  DraftTrials trials_;
  DraftLengthChooser lengths_;
  SpeculationCounts counts_;
  SpeculationCounts client_counts_;
  double draft_seconds_ = 0.0;  // that the drafter took in the last Plan
  double expected_ = 0.0;       // accepted drafts that the last Plan expects
  // Scratch memory:
  std::vector<Sequence*> drafting_;
  std::vector<DraftQuery> queries_;  // parallel to drafting_
  std::vector<int32_t> accepted_;
  std::vector<int32_t> step_rows_;
  std::vector<float> hidden_;
};

}  // namespace nereid::llm
