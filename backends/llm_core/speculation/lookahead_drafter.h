/// \file
/// Lookahead decoding (Fu et al. 2024), a drafter without weights: the target itself makes the
/// n-grams that it verifies in later steps. [engine thread]
#pragma once

#include <string_view>
#include <vector>

#include "backends/llm_core/speculation/drafter.h"
#include "backends/llm_core/speculation/lookahead_sizes.h"

namespace nereid::llm {

/// Proposes a tree of two parts. The verification branch has up to verification_set_size n-grams
/// whose first token is the newest one, out of a pool of those that were in the prompt, in the
/// output, or in the window. The lookahead branch is the window (LookaheadWindow). The engine may
/// take only the first drafts. So the verification branch comes first, because its drafts are
/// accepted most often, and the window follows column by column, because only whole columns yield
/// n-grams. Columns that are not in the step wait.
class LookaheadDrafter : public Drafter {
 public:
  /// Requires CheckLookaheadSizes(sizes).
  explicit LookaheadDrafter(const LookaheadSizes& sizes) : sizes_(sizes) {}

  std::string_view name() const override { return "lookahead"; }
  bool proposes_trees() const override { return true; }
  bool reads_row_tokens() const override { return true; }
  void ObserveRowTokens(std::unique_ptr<DrafterState>& state,
                        std::span<const int32_t> row_tokens) override;
  void Propose(std::span<DraftQuery> queries) override;

  const LookaheadSizes& sizes() const { return sizes_; }

 private:
  const LookaheadSizes sizes_;
  std::vector<std::span<const int32_t>> found_;  // scratch memory
};

}  // namespace nereid::llm
