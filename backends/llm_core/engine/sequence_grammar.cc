// Follows the text of a sequence and computes its masks.
#include "backends/llm_core/engine/sequence_grammar.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/llm_core/speculation/draft_tree.h"

namespace nereid::llm {
namespace {

constexpr size_t kMaxForcedBytes = 64;  // that are looked for at once

void SetBit(std::span<uint32_t> row, int32_t id, bool is_set) {
  uint32_t& word = row[static_cast<size_t>(id) / 32];
  const uint32_t bit = 1u << (id % 32);
  word = is_set ? word | bit : word & ~bit;
}

}  // namespace

SequenceGrammar::SequenceGrammar(std::shared_ptr<const grammar::Grammar> grammar,
                                 const TokenIds& end_ids)
    : matcher_(std::move(grammar)),
      end_ids_(end_ids),
      num_words_(matcher_.grammar().vocabulary().num_mask_words()),
      masks_(num_words_) {}

Status SequenceGrammar::Accept(int32_t token) {
  is_mask_current_ = false;
  if (matcher_.AcceptToken(token)) return Status::Ok();
  NEREID_RETURN_IF_ERROR(matcher_.status());
  return InternalError("token ", token, " was sampled, but the grammar does not allow it");
}

// Depth first: each draft is accepted once.
void SequenceGrammar::VisitAllowed(std::span<const int32_t> drafts,
                                   std::span<const int32_t> parents,
                                   const std::function<void(int32_t draft)>& visit) {
  constexpr int32_t kNone = -1;
  std::vector<int32_t> first_child(1 + drafts.size(), kNone), next_sibling(drafts.size(), kNone);
  for (auto draft = static_cast<int32_t>(drafts.size()) - 1; draft >= 0; --draft) {
    int32_t& first = first_child[1 + ParentOf(parents, draft)];
    next_sibling[draft] = std::exchange(first, draft);
  }
  std::vector<int32_t> path;
  for (int32_t draft = first_child[0]; draft != kNone || !path.empty();) {
    if (draft == kNone) {
      matcher_.Rollback(1);
      draft = next_sibling[path.back()];
      path.pop_back();
    } else if (matcher_.AcceptToken(drafts[draft])) {
      visit(draft);
      path.push_back(draft);
      draft = first_child[1 + draft];
    } else {
      draft = next_sibling[draft];
    }
  }
}

std::vector<int32_t> SequenceGrammar::AllowedDrafts(std::span<const int32_t> drafts,
                                                    std::span<const int32_t> parents) {
  std::vector<int32_t> allowed;
  VisitAllowed(drafts, parents, [&](int32_t draft) { allowed.push_back(draft); });
  std::sort(allowed.begin(), allowed.end());
  return allowed;
}

std::vector<int32_t> SequenceGrammar::ForcedTokens(size_t max_tokens) {
  const std::string forced = matcher_.ForcedBytes(kMaxForcedBytes);
  std::vector<int32_t> tokens;
  for (std::string_view rest = forced; tokens.size() < max_tokens;) {
    const auto [token, size] = matcher_.grammar().vocabulary().LongestToken(rest);
    // The last token of the text is probably longer than what is forced of it.
    if (token < 0 || size == rest.size()) break;
    tokens.push_back(token);
    rest.remove_prefix(size);
  }
  return tokens;
}

void SequenceGrammar::SetDrafts(std::span<const int32_t> drafts, std::span<const int32_t> parents) {
  if (std::ranges::equal(drafts, drafts_) && std::ranges::equal(parents, parents_)) return;
  drafts_.assign(drafts.begin(), drafts.end());
  parents_.assign(parents.begin(), parents.end());
  masks_.resize((1 + drafts.size()) * num_words_);
  is_mask_current_ = false;
}

// The vocabulary knows the end ids of the model. Those of the request may be others, and may also
// have a text, as which they are allowed where the grammar allows it.
void SequenceGrammar::ComputeRow(std::span<uint32_t> row) {
  matcher_.ComputeMask(row);
  if (!matcher_.CanEnd()) return;
  for (const int32_t id : matcher_.grammar().vocabulary().end_ids()) SetBit(row, id, false);
  for (const int32_t id : end_ids_) SetBit(row, id, true);
}

void SequenceGrammar::ComputeMask() {
  if (is_mask_current_) return;
  is_mask_current_ = true;
  const std::span<uint32_t> rows = masks_;
  std::fill(masks_.begin() + static_cast<ptrdiff_t>(num_words_), masks_.end(), 0);
  ComputeRow(rows.first(num_words_));
  VisitAllowed(drafts_, parents_, [&](int32_t draft) {
    ComputeRow(rows.subspan((1 + static_cast<size_t>(draft)) * num_words_, num_words_));
  });
}

}  // namespace nereid::llm
