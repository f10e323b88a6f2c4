// Where the output of a sequence is in the grammar of its request, and the masks of its next
// tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/grammar/matcher.h"
#include "backends/llm_core/sampling/sampling_params.h"
#include "nereid/status.h"

namespace nereid::llm {

// [one thread at a time: the engine's, or a thread of MaskThreads during a step]
class SequenceGrammar {
 public:
  // `end_ids`: of the request, borrowed. They, and no other ids, end its sequences.
  SequenceGrammar(std::shared_ptr<const grammar::Grammar> grammar, const TokenIds& end_ids);

  // Appends a token that is not an end id. An error means that the grammar does not allow it, or
  // that following the text exceeds a limit.
  Status Accept(int32_t token);
  // Whether the text may end, and whether it has no continuation.
  bool CanEnd() const { return matcher_.CanEnd(); }
  bool MustEnd() const { return matcher_.MustEnd(); }
  // The drafts that a step may verify, in ascending order: the grammar allows them behind the text
  // and the drafts before them. `parents`: as BatchEntry::draft_parents.
  std::vector<int32_t> AllowedDrafts(std::span<const int32_t> drafts,
                                     std::span<const int32_t> parents);
  // Up to `max_tokens` tokens of the bytes that every text of the grammar has next. The model may
  // write the same bytes in other tokens, so that these are drafts like others.
  std::vector<int32_t> ForcedTokens(size_t max_tokens);
  // Says which drafts the next step verifies. The masks of the positions behind them are computed
  // as well. Behind a draft that is not allowed, no token is.
  void SetDrafts(std::span<const int32_t> drafts, std::span<const int32_t> parents);
  // Computes the masks of the next step, unless they are known from an earlier one.
  void ComputeMask();
  // The masks in the form of BatchEntry::token_masks: a row for the next token, and one behind each
  // of the first `num_drafts` of the drafts. Their address changes only in SetDrafts.
  std::span<const uint32_t> masks(size_t num_drafts) const {
    return std::span(masks_).first((1 + num_drafts) * num_words_);
  }
  // An error if a limit was exceeded. No token is allowed then.
  const Status& status() const { return matcher_.status(); }

 private:
  void ComputeRow(std::span<uint32_t> row);
  // Calls `visit` for each allowed draft, with the text up to it accepted.
  void VisitAllowed(std::span<const int32_t> drafts, std::span<const int32_t> parents,
                    const std::function<void(int32_t draft)>& visit);

  grammar::Matcher matcher_;
  const TokenIds& end_ids_;
  const size_t num_words_;
  std::vector<uint32_t> masks_;
  std::vector<int32_t> drafts_, parents_;
  bool is_mask_current_ = false;
};

}  // namespace nereid::llm
