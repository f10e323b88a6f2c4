#include "backends/bls/drafted_text.h"

#include <algorithm>
#include <utility>

namespace nereid::bls {

DraftedText::DraftedText(TokenIds prompt, int32_t max_tokens, int32_t num_draft_tokens,
                         int32_t overlap)
    : num_prompt_(prompt.size()),
      max_tokens_(static_cast<size_t>(max_tokens)),
      num_draft_tokens_(static_cast<size_t>(num_draft_tokens)),
      overlap_(static_cast<size_t>(overlap)),
      ids_(std::move(prompt)),
      num_call_prompt_(num_prompt_) {}

int32_t DraftedText::NumToDraft() const {
  return static_cast<int32_t>(std::min(num_draft_tokens_, NumLeft() - 1));
}

void DraftedText::BeginCall(std::span<const int32_t> proposed) {
  num_call_prompt_ = ids_.size() - std::min(overlap_, ids_.size() - num_prompt_);
  call_draft_.assign(ids_.begin() + static_cast<ptrdiff_t>(num_call_prompt_), ids_.end());
  const size_t num_used = std::min(proposed.size(), NumLeft() - 1);
  call_draft_.insert(call_draft_.end(), proposed.begin(),
                     proposed.begin() + static_cast<ptrdiff_t>(num_used));
  num_proposed_ += static_cast<int64_t>(num_used);
}

bool DraftedText::EndCall(std::span<const int32_t> generated) {
  const size_t num_overlap = ids_.size() - num_call_prompt_;
  const auto same =
      std::mismatch(call_draft_.begin(), call_draft_.end(), generated.begin(), generated.end());
  const size_t num_same = static_cast<size_t>(same.first - call_draft_.begin());
  if (num_same > num_overlap) num_accepted_ += static_cast<int64_t>(num_same - num_overlap);
  ids_.resize(num_call_prompt_);
  ids_.insert(ids_.end(), generated.begin(), generated.end());
  return generated.size() == call_draft_.size() + 1 && ids_.size() < num_prompt_ + max_tokens_;
}

}  // namespace nereid::bls
