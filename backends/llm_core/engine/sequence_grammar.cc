// Masks of a sequence.
#include "backends/llm_core/engine/sequence_grammar.h"

#include <utility>

namespace nereid::llm {

SequenceGrammar::SequenceGrammar(std::shared_ptr<const grammar::Grammar> grammar,
                                 const TokenIds& end_ids)
    : matcher_(std::move(grammar)),
      end_ids_(end_ids),
      mask_(matcher_.grammar().vocabulary().num_mask_words()) {}

Status SequenceGrammar::Accept(int32_t token) {
  is_mask_current_ = false;
  if (matcher_.AcceptToken(token)) return Status::Ok();
  NEREID_RETURN_IF_ERROR(matcher_.status());
  return InternalError("token ", token, " was sampled, but the grammar does not allow it");
}

void SequenceGrammar::SetBit(int32_t id, bool is_set) {
  uint32_t& word = mask_[static_cast<size_t>(id) / 32];
  const uint32_t bit = 1u << (id % 32);
  word = is_set ? word | bit : word & ~bit;
}

// The vocabulary knows the end ids of the model. Those of the request may be others, and may also
// have a text, as which they are allowed where the grammar allows it.
void SequenceGrammar::ComputeMask() {
  if (is_mask_current_) return;
  matcher_.ComputeMask(mask_);
  is_mask_current_ = true;
  if (!matcher_.CanEnd()) return;
  for (const int32_t id : matcher_.grammar().vocabulary().end_ids()) SetBit(id, false);
  for (const int32_t id : end_ids_) SetBit(id, true);
}

}  // namespace nereid::llm
