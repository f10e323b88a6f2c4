/// \file
/// A drafter that runs an EAGLE-3 head: a single layer that continues the hidden states of the
/// target. Source: Li et al., "EAGLE-3: Scaling up inference acceleration of large language models
/// via training-time test", 2025. [engine thread]
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backends/llm_core/speculation/draft_chains.h"
#include "backends/llm_core/speculation/drafter.h"
#include "backends/llm_core/speculation/ranked_tree.h"

namespace nereid::llm {

/// Row p of the head takes the hidden states of token p and token p + 1, and predicts token p + 2.
/// The hidden states are the target's up to the newest token, and behind it the head's own.
class Eagle3Drafter : public Drafter {
 public:
  /// A proposal ends before a token of a lower probability.
  static constexpr float kLeastProbability = 0.3f;
  /// Hidden states that are kept of a sequence until the head runs them. Of a longer prompt, the
  /// head sees only the end.
  static constexpr int32_t kMostKept = 1024;
  /// Rows that one call runs of sequences that are behind. Those that are further behind get no
  /// drafts.
  static constexpr int32_t kMostBehind = 2048;
  /// Tokens beside that of the chain, at each place of a tree.
  static constexpr int32_t kSiblings = 3;
  /// The chain of a tree ends before a token that it reaches with a lower probability. A row of the
  /// head takes about as long as a step needs for so many tokens.
  static constexpr float kLeastPath = 0.15f;
  /// Drafts of a tree without choices.
  static constexpr int32_t kDefaultDrafts = 15;

  explicit Eagle3Drafter(std::unique_ptr<DraftChains> chains,
                         float least_probability = kLeastProbability);
  ~Eagle3Drafter() override;
  /// From now on proposals are trees: the likeliest paths of the chain and the tokens beside it, or
  /// those of explicit choices, for which `least_path` does not count. Requires
  /// DraftChains::gives_siblings(), and choices of ParseCombChoices.
  void DraftTrees(std::vector<TreeChoice> choices = {}, float least_path = kLeastPath);

  std::string_view name() const override { return "eagle3"; }
  bool is_costly() const override { return true; }
  int32_t max_catch_up() const override { return kMostBehind; }
  bool proposes_trees() const override { return num_siblings_ > 0; }
  /// For choices their number.
  int32_t default_max_drafts() const override {
    if (!choices_.empty()) return static_cast<int32_t>(choices_.size());
    return proposes_trees() ? kDefaultDrafts : kDefaultChainDrafts;
  }
  /// Of a tree, as many rows as chains recently had until their tokens were too unlikely.
  int32_t DraftingSteps(int32_t num_drafts) const override;
  bool reads_hidden_states() const override { return true; }
  void Observe(std::unique_ptr<DrafterState>& state, int32_t first_position,
               const HiddenRows& rows) override;
  void FinishObserving() override;
  /// After an error of the head, no sequence gets drafts.
  void Propose(std::span<DraftQuery> queries) override;

 private:
  class State;

  /// Adds the rows of a sequence up to its newest token, as many as `num_behind` allows, unless it
  /// has none to run or the head has no memory for it.
  void AppendChain(DraftQuery& query, int32_t& num_behind);
  /// Adds the next `count` rows of a sequence. `max_drafts` is 0 if further ones have to be run
  /// first.
  void AddChain(DraftQuery& query, State& state, int32_t count, int32_t max_drafts);
  /// The most rows of a tree's chain.
  int32_t MostRows(int32_t num_drafts) const;
  /// Takes what the chains of a call have become: trees, and the number of their rows.
  void TakeChains();
  /// Replaces a query's chain by a tree.
  void MakeTree(const ChainSiblings& siblings, DraftQuery& query) const;

  const std::unique_ptr<DraftChains> head_;
  const float least_probability_;
  bool has_failed_ = false;
  int32_t num_siblings_ = 0;
  float least_path_ = 0.0f;
  float mean_rows_ = 0.0f;  // of calls whose chains all ended early; 0: unknown
  std::vector<TreeChoice> choices_;
  std::vector<DraftChain> chains_;
  std::vector<State*> states_;           // parallel to chains_
  std::vector<DraftQuery*> asked_;       // parallel to chains_
  std::vector<ChainSiblings> siblings_;  // those of chains_ come first
};

}  // namespace nereid::llm
