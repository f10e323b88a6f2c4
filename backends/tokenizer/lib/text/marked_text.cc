// See marked_text.h.
#include "backends/tokenizer/lib/text/marked_text.h"

#include <algorithm>

namespace nereid::tokenizer {

void MarkedText::Mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!input_ranges_.empty() && input_ranges_.back().end == begin) {
    input_ranges_.back().end = end;
  } else {
    input_ranges_.push_back({begin, end});
  }
}

void MarkedText::Append(std::string_view text, bool is_input) {
  if (is_input) Mark(bytes_.size(), bytes_.size() + text.size());
  bytes_.append(text);
}

void MarkedText::AppendSlice(const MarkedText& text, size_t begin, size_t end) {
  const size_t offset = bytes_.size();
  const std::vector<ByteRange>& ranges = text.input_ranges_;
  auto range = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                [](size_t at, const ByteRange& r) { return at < r.end; });
  for (; range != ranges.end() && range->begin < end; ++range) {
    Mark(offset + std::max(range->begin, begin) - begin,
         offset + std::min(range->end, end) - begin);
  }
  bytes_.append(text.bytes_, begin, end - begin);
}

MarkedText MarkedText::Slice(size_t begin, size_t end) const {
  MarkedText slice;
  slice.AppendSlice(*this, begin, end);
  return slice;
}

bool MarkedText::HasInput(size_t begin, size_t end) const {
  const auto range = std::upper_bound(input_ranges_.begin(), input_ranges_.end(), begin,
                                      [](size_t at, const ByteRange& r) { return at < r.end; });
  return range != input_ranges_.end() && range->begin < end;
}

}  // namespace nereid::tokenizer
