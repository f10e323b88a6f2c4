/// \file
/// A drafter that runs Medusa heads, all of them in one call, and proposes trees of the tokens that
/// they rank. Source: Cai et al., "Medusa: Simple LLM inference acceleration framework with
/// multiple decoding heads", 2024. [engine thread]
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backends/llm_core/speculation/drafter.h"
#include "backends/llm_core/speculation/medusa_heads.h"
#include "backends/llm_core/speculation/ranked_tree.h"

namespace nereid::llm {

class MedusaDrafter : public Drafter {
 public:
  /// `choices`: an explicit tree whose depths the heads have and whose ranks are below
  /// kMaxMedusaTokens; empty: the paths that are likeliest by the heads.
  explicit MedusaDrafter(std::unique_ptr<MedusaHeads> heads, std::vector<TreeChoice> choices = {});
  std::string_view name() const override { return "medusa"; }
  bool is_costly() const override { return true; }
  bool proposes_trees() const override { return true; }
  int32_t DraftingSteps(int32_t) const override { return 1; }
  bool reads_hidden_states() const override { return true; }
  void Observe(std::unique_ptr<DrafterState>& state, int32_t first_position,
               const HiddenRows& rows) override;
  void FinishObserving() override;
  void Propose(std::span<DraftQuery> queries) override;

 private:
  class State;

  // Writes the proposal for a query from the tokens that the heads rank.
  void FillQuery(DraftQuery& query, std::span<SampledToken> tokens) const;

  const std::unique_ptr<MedusaHeads> heads_;
  const std::vector<TreeChoice> choices_;
  int32_t num_ranks_ = 0;             // tokens of each head that are considered
  bool has_failed_ = false;           // the heads have: there are no more drafts
  std::vector<DraftQuery*> asked_;    // scratch memory
  std::vector<int32_t> rows_;         // parallel to asked_
  std::vector<SampledToken> tokens_;  // [asked_, heads, num_ranks_]
};

}  // namespace nereid::llm
