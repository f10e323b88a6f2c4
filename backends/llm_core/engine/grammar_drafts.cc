// Removes drafts that grammars do not allow, and proposes the text that they force.
#include "backends/llm_core/engine/grammar_drafts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backends/llm_core/speculation/draft_tree.h"

namespace nereid::llm {
namespace {

constexpr int32_t kMaxForcedTokens = 8;  // of one sequence in one step
// Tokens of a step with its forced tokens. A step of more takes longer, so that a sequence that
// writes the text in other tokens would delay the others.
constexpr size_t kMaxForcedRows = 32;
// Forced text is no longer proposed to a sequence that writes it in other tokens.
constexpr float kLeastAcceptance = 0.5f;
constexpr float kPriorAcceptance = 0.9f;
constexpr float kPriorWeight = 8.0f;

std::span<const int32_t> FirstParents(const SequenceDrafts& drafts, size_t count) {
  const std::span<const int32_t> parents = drafts.parents;
  return parents.empty() ? parents : parents.first(count);
}

// Removes the drafts that the grammar does not allow from a tree, with those behind them. A drafter
// that reads row tokens needs the places of its drafts, so that only the last ones are removed; the
// masks ban the others.
void RemoveForbidden(Sequence& sequence) {
  SequenceDrafts& drafts = *sequence.drafts;
  const auto proposed = std::span<const int32_t>(drafts.ids).first(sequence.num_drafts);
  const std::vector<int32_t> allowed =
      sequence.grammar->AllowedDrafts(proposed, FirstParents(drafts, proposed.size()));
  if (drafts.parents.empty() || drafts.returns_row_tokens) {
    sequence.num_drafts = allowed.empty() ? 0 : static_cast<uint8_t>(allowed.back() + 1);
    return;
  }
  std::vector<int32_t> new_index(proposed.size(), kTreeRoot);
  for (size_t i = 0; i < allowed.size(); ++i) {
    const int32_t draft = allowed[i], parent = drafts.parents[draft];
    new_index[draft] = static_cast<int32_t>(i);
    drafts.ids[i] = drafts.ids[draft];
    drafts.parents[i] = parent == kTreeRoot ? kTreeRoot : new_index[parent];
  }
  drafts.ids.resize(allowed.size());
  drafts.parents.resize(allowed.size());
  sequence.num_drafts = static_cast<uint8_t>(allowed.size());
}

void FitDrafts(Sequence& sequence, int32_t max_forced) {
  SequenceDrafts& drafts = *sequence.drafts;
  if (sequence.num_drafts > 0) RemoveForbidden(sequence);
  const int32_t most = std::min(sequence.max_drafts(), max_forced);
  // A token that replaces a sampled one is no draft.
  const bool is_replaced = sequence.has_reasoning_budget &&
                           sequence.reasoning->IsDueWithin(int64_t{kMaxForcedTokens} + 1);
  constexpr int32_t kClass = AcceptanceRates::kNumClasses - 1;
  if (sequence.num_drafts == 0 && sequence.decodes_next() && most > 0 && !is_replaced &&
      drafts.acceptance.Estimate(kClass, kPriorAcceptance, kPriorWeight) >= kLeastAcceptance) {
    std::vector<int32_t> forced = sequence.grammar->ForcedTokens(static_cast<size_t>(most));
    if (!forced.empty()) {
      drafts.ClearProposal();
      drafts.ids = std::move(forced);
      drafts.match_class = kClass;
      sequence.num_drafts = static_cast<uint8_t>(drafts.ids.size());
    }
  }
  sequence.grammar->SetDrafts(std::span(drafts.ids).first(sequence.num_drafts),
                              FirstParents(drafts, sequence.num_drafts));
}

}  // namespace

void FitDraftsToGrammars(std::span<const std::unique_ptr<Sequence>> running) {
  const size_t rows = kMaxForcedRows / std::max<size_t>(running.size(), 1);
  const int32_t max_forced = std::clamp(static_cast<int32_t>(rows) - 1, 0, kMaxForcedTokens);
  for (const std::unique_ptr<Sequence>& sequence : running) {
    if (sequence->has_grammar && sequence->drafts != nullptr) FitDrafts(*sequence, max_forced);
  }
}

}  // namespace nereid::llm
