/// \file
/// The interface of drafters. A drafter proposes the tokens that may follow a sequence; the
/// executor verifies them in one step. A proposal affects only the speed, never the tokens of the
/// answer. [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backends/llm_core/sampling/sampling_params.h"
#include "backends/llm_core/speculation/acceptance_rates.h"
#include "backends/llm_core/speculation/hidden_rows.h"
#include "backends/llm_core/speculation/lookahead_sizes.h"

namespace nereid::llm {

/// The most draft tokens of a sequence in one step, as a chain and as a tree.
inline constexpr int32_t kMaxDraftTokens = 64;
inline constexpr int32_t kMaxTreeDrafts = 127;
/// The same where no parameter says otherwise.
inline constexpr int32_t kDefaultChainDrafts = 8;
inline constexpr int32_t kDefaultTreeDrafts = 63;

/// What a drafter keeps for one sequence. Owned by the sequence.
class DrafterState {
 public:
  virtual ~DrafterState() = default;
};

/// One sequence for which drafts are wanted. Everything is borrowed for the call.
struct DraftQuery {
  /// Prompt and output; later calls only append to them. Virtual tokens, whose ids exceed the
  /// vocabulary, are among them only if reads_virtual_tokens().
  std::span<const int32_t> tokens;
  int32_t max_drafts = 0;  ///< 1 to kMaxDraftTokens; with takes_trees, to kMaxTreeDrafts
  std::unique_ptr<DrafterState>* state = nullptr;  ///< null at first; the drafter may set it
  int32_t num_prompt = 0;                          ///< of `tokens`
  /// How the target samples. A drafter that draws uses the same seed and positions, so that its
  /// tokens are those of the target wherever both distributions allow it.
  const SamplingParams* sampling = nullptr;
  std::span<const int32_t> banned_ids;  ///< as in SamplingInput
  /// The sizes of lookahead decoding that the request asks for; null: those of the drafter.
  const LookaheadSizes* lookahead = nullptr;
  /// --- written by the drafter ---
  std::vector<int32_t>* drafts = nullptr;  ///< empty at first; valid token ids
  /// Empty at first. Left empty: the drafts are a chain; else as BatchEntry::draft_parents. Only
  /// with takes_trees. Any first drafts of a tree are a tree, too, and the engine may take these.
  std::vector<int32_t>* parents = nullptr;
  bool takes_trees = false;  ///< set by the engine: ExecutorFeatures::draft_trees
  /// So many first drafts of a tree are proposed because they may be accepted. The others are
  /// proposed because the drafter learns from what is sampled behind them (reads_row_tokens), which
  /// pays in later steps. The yields of steps with and without the others are measured apart.
  int32_t num_direct = kMaxTreeDrafts;
  /// How much the drafter relies on the proposal, from 0 to AcceptanceRates::kNumClasses - 1. The
  /// acceptance is measured for each class.
  int32_t match_class = 0;
  /// Tokens of the sequence that the drafter had to catch up with, beyond those of the last step:
  /// the call took longer than others of its length.
  int32_t num_caught_up = 0;
  /// What the proposal took, in units of Drafter::DraftingSteps; 0: that of its drafts.
  int32_t num_steps = 0;
};

/// Tokens that a drafter has not seen of a sequence: so many are those of the last step. For more
/// of them it catches up, which takes time.
inline constexpr int32_t kMostUnseenOfStep = 16;

class Drafter {
 public:
  virtual ~Drafter() = default;
  /// As in metrics; the same for the lifetime of the drafter.
  virtual std::string_view name() const = 0;
  /// Whether the drafter compares tokens only, so that the virtual tokens of prompt embeddings may
  /// be among them. Otherwise sequences that have some get no drafts. Proposals are cut before a
  /// virtual token.
  virtual bool reads_virtual_tokens() const { return false; }
  /// Whether a proposal takes time that grows with its length. DraftQuery::max_drafts is then the
  /// number that pays, and the drafter is not asked for sequences for which no draft pays.
  virtual bool is_costly() const { return false; }
  /// Whether proposals are trees, where DraftQuery::takes_trees allows it. How often a draft is
  /// accepted is then measured for its index in the proposal: the likeliest ones come first.
  virtual bool proposes_trees() const { return false; }
  /// The most drafts of a sequence in one step where no parameter says otherwise.
  virtual int32_t default_max_drafts() const {
    return proposes_trees() ? kDefaultTreeDrafts : kDefaultChainDrafts;
  }
  /// With is_costly: the time of a proposal of so many drafts, in units of that of one draft.
  virtual int32_t DraftingSteps(int32_t num_drafts) const { return num_drafts; }
  /// The most tokens that one call catches up with, of all sequences together. The sequences for
  /// which none are left get no drafts in that call.
  virtual int32_t max_catch_up() const { return INT32_MAX; }
  /// Whether the drafter needs the hidden states of the target: Observe is then called for every
  /// step of a sequence, in the order of the steps.
  virtual bool reads_hidden_states() const { return false; }
  /// The sequence's tokens from `first_position` on were run. `rows` belong to those of them that
  /// are part of the sequence.
  virtual void Observe(std::unique_ptr<DrafterState>& /*state*/, int32_t /*first_position*/,
                       const HiddenRows& /*rows*/) {}
  /// Whether the drafter reads what the target samples behind every draft of a step, accepted or
  /// not: ObserveRowTokens is then called for every step with drafts, before Propose.
  virtual bool reads_row_tokens() const { return false; }
  /// `row_tokens` are StepResult::row_tokens for the drafts of the last proposal that were in the
  /// step: the first ones.
  virtual void ObserveRowTokens(std::unique_ptr<DrafterState>& /*state*/,
                                std::span<const int32_t> /*row_tokens*/) {}
  /// Called after the last Observe of a step, and before the next step is submitted.
  virtual void FinishObserving() {}
  /// Proposes drafts for all sequences of the next step together.
  virtual void Propose(std::span<DraftQuery> queries) = 0;
};

}  // namespace nereid::llm
