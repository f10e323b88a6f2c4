// See stop_text.h.
#include "backends/llm_core/adapter/stop_text.h"

#include <algorithm>

namespace nereid::llm_adapter {

using tokenizer::kMaxHeldIds;  // a text's reader holds the bytes of a character as long

StopText::StopText(std::shared_ptr<const StopTexts> texts)
    : texts_(std::move(texts)),
      decoder_(*texts_->tokenizer, texts_->skip_special_tokens, kMaxHeldIds),
      matcher_(texts_->matcher) {}

llm::StopVerdict StopText::OnToken(std::span<const int32_t> ids) {
  std::string piece, settled;
  decoder_.Push(ids.last(1), piece);
  text_size_ += piece.size();
  held_ += piece;
  ends_.push_back(text_size_);
  ++num_open_;
  if (decoder_.is_settled() || num_open_ > kMaxHeldIds) {
    std::fill(ends_.end() - static_cast<ptrdiff_t>(num_open_), ends_.end(), text_size_);
    num_open_ = 0;
  }
  const size_t held_before = matcher_.held_bytes();
  const bool is_found = matcher_.Push(piece, settled);
  if (is_found && static_cast<int32_t>(ids.size()) > texts_->min_tokens) {
    const size_t stop_at = text_size_ - piece.size() - held_before + settled.size();
    Settle(stop_at);
    held_.resize(stop_at - visible_size_);
    return {llm::FinishReason::kStop, static_cast<int32_t>(num_visible_)};
  }
  if (is_found) matcher_.Restart();  // too early to count
  Settle(text_size_ - matcher_.held_bytes());
  return {llm::FinishReason::kNone, static_cast<int32_t>(num_visible_)};
}

// The tokens within the first `num_bytes` of the text become visible.
void StopText::Settle(size_t num_bytes) {
  while (ends_.size() > num_open_ && ends_.front() <= num_bytes) {
    held_.erase(0, ends_.front() - visible_size_);
    visible_size_ = ends_.front();
    ends_.pop_front();
    ++num_visible_;
  }
}

llm::TokenIds StopText::Tail(std::span<const int32_t> ids) const {
  return texts_->tokenizer->Spell(held_, ids.last(std::min(ids.size(), kMaxHeldIds)),
                                  texts_->skip_special_tokens);
}

}  // namespace nereid::llm_adapter
