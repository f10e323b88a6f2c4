// Incremental search of stop strings in decoded text.
#include "backends/llm_core/adapter/stop_string_detector.h"

#include <algorithm>

namespace nereid::llm {

// The client's incremental decoder holds back at most as many tokens.
using tokenizer::kMaxPendingIds;

StopStringDetector::StopStringDetector(std::shared_ptr<const StopStrings> texts)
    : texts_(std::move(texts)),
      decoder_(*texts_->tokenizer, texts_->decoding, kMaxPendingIds),
      matcher_(texts_->matcher) {}

llm::StopResult StopStringDetector::OnToken(std::span<const int32_t> ids) {
  std::string piece, settled;
  decoder_.Push(ids.last(1), piece);
  text_size_ += piece.size();
  pending_text_ += piece;
  ends_.push_back(text_size_);
  ++num_incomplete_;
  if (decoder_.is_flushed() || num_incomplete_ > kMaxPendingIds) {
    std::fill(ends_.end() - static_cast<ptrdiff_t>(num_incomplete_), ends_.end(), text_size_);
    num_incomplete_ = 0;
  }
  const size_t held_before = matcher_.pending_bytes();
  const bool is_found = matcher_.Push(piece, settled);
  if (is_found && static_cast<int32_t>(ids.size()) > texts_->min_tokens) {
    const size_t stop_at = text_size_ - piece.size() - held_before + settled.size();
    MarkVisible(stop_at);
    pending_text_.resize(stop_at - visible_size_);
    return {llm::FinishReason::kStop, static_cast<int32_t>(num_visible_)};
  }
  if (is_found) matcher_.Reset();  // before min_tokens
  MarkVisible(text_size_ - matcher_.pending_bytes());
  return {llm::FinishReason::kNone, static_cast<int32_t>(num_visible_)};
}

// Makes the tokens within the first `num_bytes` of the text visible.
void StopStringDetector::MarkVisible(size_t num_bytes) {
  while (ends_.size() > num_incomplete_ && ends_.front() <= num_bytes) {
    pending_text_.erase(0, ends_.front() - visible_size_);
    visible_size_ = ends_.front();
    ends_.pop_front();
    ++num_visible_;
  }
}

llm::TokenIds StopStringDetector::ReplacementIds(std::span<const int32_t> ids) const {
  return texts_->tokenizer->EncodeContinuation(
      pending_text_, ids.last(std::min(ids.size(), kMaxPendingIds)), texts_->decoding);
}

}  // namespace nereid::llm
