// See grammar_drafts.h.
#include "backends/llm_core/engine/grammar_drafts.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace nereid::llm {
namespace {

constexpr int32_t kMaxForcedTokens = 8;  // of one sequence in one step
// Of a step with its forced tokens. The rows of a larger one take time of their own, so that a
// sequence that writes the text in other tokens would delay the others.
constexpr size_t kMaxForcedRows = 32;
// Forced text is no longer proposed to a sequence that writes it in other tokens.
constexpr float kLeastAcceptance = 0.5f;
constexpr float kPriorAcceptance = 0.9f;
constexpr float kPriorWeight = 8.0f;

void FitDrafts(Sequence& sequence, int32_t max_forced) {
  SequenceDrafts& drafts = *sequence.drafts;
  if (sequence.num_drafts > 0) {
    const auto proposed = std::span(drafts.ids).first(sequence.num_drafts);
    sequence.num_drafts = static_cast<uint8_t>(sequence.grammar->NumAllowed(proposed));
  }
  const bool decodes = sequence.num_tokens() - sequence.num_cached == 1 && !sequence.is_suspended;
  const int32_t left = sequence.num_max_tokens - sequence.num_tokens() - 1;
  // A token that replaces a sampled one is no draft.
  const bool is_replaced = sequence.has_reasoning_budget &&
                           sequence.reasoning->IsDueWithin(int64_t{kMaxForcedTokens} + 1);
  constexpr int32_t kClass = AcceptanceRates::kNumClasses - 1;
  if (sequence.num_drafts == 0 && decodes && std::min(left, max_forced) > 0 && !is_replaced &&
      drafts.acceptance.Estimate(kClass, kPriorAcceptance, kPriorWeight) >= kLeastAcceptance) {
    std::vector<int32_t> forced =
        sequence.grammar->ForcedTokens(static_cast<size_t>(std::min(left, max_forced)));
    if (!forced.empty()) {
      drafts.ids = std::move(forced);
      drafts.logits = {};
      drafts.are_of_client = false;
      drafts.match_class = kClass;
      sequence.num_drafts = static_cast<uint8_t>(drafts.ids.size());
    }
  }
  sequence.grammar->SetDrafts(std::span(drafts.ids).first(sequence.num_drafts));
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
