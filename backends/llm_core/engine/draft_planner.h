// Decides how many draft tokens each sequence gets in the next step, and measures what became of
// them. Draft tokens are used only while the measured step durations and acceptance make the step
// yield more tokens a second than without them. [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/sequence.h"
#include "backends/llm_core/speculation/drafter.h"
#include "backends/llm_core/speculation/step_costs.h"

namespace nereid::llm {

struct SpeculationOptions {
  std::shared_ptr<Drafter> drafter;  // null: no speculation
  int32_t max_draft_tokens = 8;      // of a sequence in one step; 1 to kMaxDraftTokens
  // False: every proposal is verified at full length, whatever it costs.
  bool adapts_length = true;
};

struct SpeculationCounts {
  int64_t num_drafted = 0;          // draft tokens that were verified
  int64_t num_accepted = 0;         // of these
  int64_t num_verified_chains = 0;  // entries with draft tokens
};

class DraftPlanner {
 public:
  // `is_supported`: the executor verifies drafts. `typical_costs`: of StepCosts.
  DraftPlanner(SpeculationOptions options, bool is_supported,
               std::span<const StepCostPoint> typical_costs = {})
      : options_(std::move(options)), is_supported_(is_supported), costs_(typical_costs) {}

  // Whether any sequence may have drafts, of the drafter or of a client.
  bool is_on() const { return is_supported_; }
  // Prepares a sequence that enters the scheduler.
  void Add(Sequence& sequence) const;
  // Sets the drafts of all running sequences that decode next. A sequence whose newest token is
  // pending gets none, but its proposal decides whether it stays idle (SequenceDrafts).
  void Plan(std::span<const std::unique_ptr<Sequence>> running);
  // Called when the result of a step is known. `accepted` are the accepted ones of the
  // `num_drafts` > 0 tokens of the sequence's entry.
  void RecordAccepted(Sequence& sequence, int32_t num_drafts, int32_t num_accepted);
  // Called for a sampled token at which the sequence had no draft in the step: measures what the
  // proposal would have brought. The tokens come in the order of the sequence.
  void RecordUnverified(Sequence& sequence, int32_t token);
  // Records the duration of a step whose entries all decode.
  void RecordStep(int32_t num_sequences, int32_t num_drafts, double seconds) {
    costs_.Record(num_sequences, num_drafts, seconds);
  }
  const SpeculationCounts& counts() const { return counts_; }

 private:
  // Whether the drafter may see the sequence's tokens.
  bool MayPropose(const Sequence& sequence) const;
  // Makes the rest of the client's own drafts the sequence's. Returns false if there is none, or
  // the output differs from them.
  static bool TakeClientDrafts(Sequence& sequence, int32_t most);
  // Lowers the sequences' num_drafts to what pays.
  void ChooseLengths(int32_t num_decoding);
  float RateOf(const Sequence& sequence) const;

  SpeculationOptions options_;
  const bool is_supported_;
  AcceptanceRates acceptance_;  // of all sequences
  StepCosts costs_;
  SpeculationCounts counts_;
  std::vector<Sequence*> drafting_;  // scratch memory
  std::vector<float> rates_;         // parallel to drafting_
  std::vector<DraftQuery> queries_;
};

}  // namespace nereid::llm
