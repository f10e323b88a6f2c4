// Masks of a sequence.
#include "backends/llm_core/engine/sequence_grammar.h"

#include <algorithm>
#include <string>
#include <utility>

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

size_t SequenceGrammar::NumAllowed(std::span<const int32_t> drafts) {
  size_t num = 0;
  while (num < drafts.size() && matcher_.AcceptToken(drafts[num])) ++num;
  matcher_.Rollback(num);
  return num;
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

void SequenceGrammar::SetDrafts(std::span<const int32_t> drafts) {
  if (std::equal(drafts.begin(), drafts.end(), drafts_.begin(), drafts_.end())) return;
  drafts_.assign(drafts.begin(), drafts.end());
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
  ComputeRow(rows.first(num_words_));
  size_t num = 0;
  while (num < drafts_.size() && matcher_.AcceptToken(drafts_[num])) {
    ++num;
    ComputeRow(rows.subspan(num * num_words_, num_words_));
  }
  // Drafts that the grammar does not allow are not verified.
  std::fill(masks_.begin() + static_cast<ptrdiff_t>((num + 1) * num_words_), masks_.end(), 0);
  matcher_.Rollback(num);
}

}  // namespace nereid::llm
