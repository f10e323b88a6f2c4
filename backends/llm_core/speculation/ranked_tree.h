/// \file
/// Draft trees of ranked tokens: explicit trees, and those of the likeliest paths. Medusa heads and
/// EAGLE-3 heads rank the tokens of each depth. [any thread]
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "backends/llm_core/sampling/log_probs.h"
#include "nereid/status.h"

namespace nereid::llm {

/// One draft of an explicit tree.
struct TreeChoice {
  int32_t parent = -1;  ///< as BatchEntry::draft_parents
  int32_t depth = 0;    ///< the drafts before it on its path
  int32_t rank = 0;     ///< among the tokens of its depth, the likeliest first
};

/// Parses a list of paths, each of which is the ranks from the newest token on: `{0}, {0, 0}, {1}`,
/// with brackets of either kind, and one pair around the whole list or none. The choices are in the
/// order of the list, except that parents come before their children. INVALID_ARG names a path that
/// has a rank of `num_ranks` or more, is longer than `max_depth`, is twice in the list, or lacks
/// its parent. A list of more than kMaxTreeDrafts paths is refused, too.
Result<std::vector<TreeChoice>> ParseTreeChoices(std::string_view text, int32_t max_depth,
                                                 int32_t num_ranks);

/// The same for heads that draft along the first token of each depth only. UNSUPPORTED names a path
/// that goes on behind another token.
Result<std::vector<TreeChoice>> ParseCombChoices(std::string_view text, int32_t max_depth,
                                                 int32_t num_ranks);

/// Puts kNoToken in place of the tokens that are among `banned_ids`, since they are never accepted.
void RemoveBanned(std::span<const int32_t> banned_ids, std::span<SampledToken> tokens);

/// The tokens of each depth: [num_depths, num_ranks], the likeliest first. Those with the id
/// kNoToken are not drafted.
struct RankedTokens {
  std::span<const SampledToken> tokens;
  int32_t num_ranks = 0;
  int32_t num_depths() const { return static_cast<int32_t>(tokens.size()) / num_ranks; }
  const SampledToken& At(int32_t depth, int32_t rank) const {
    return tokens[static_cast<size_t>(depth) * static_cast<size_t>(num_ranks) +
                  static_cast<size_t>(rank)];
  }
};

/// Appends the first `max_drafts` drafts of an explicit tree.
void FillTree(std::span<const TreeChoice> choices, const RankedTokens& ranked, int32_t max_drafts,
              std::vector<int32_t>& drafts, std::vector<int32_t>& parents);
/// Appends the `max_drafts` paths with the greatest products of probabilities, in descending order.
void GrowTree(const RankedTokens& ranked, int32_t max_drafts, std::vector<int32_t>& drafts,
              std::vector<int32_t>& parents);
/// The same for tokens that depend on their path: those of a depth were ranked behind the first
/// token of each depth before it, and follow only these.
void GrowComb(const RankedTokens& ranked, int32_t max_drafts, std::vector<int32_t>& drafts,
              std::vector<int32_t>& parents);

}  // namespace nereid::llm
