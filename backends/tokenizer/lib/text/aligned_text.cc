// See aligned_text.h.
#include "backends/tokenizer/lib/text/aligned_text.h"

#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {

AlignedText AlignedText::Of(std::string_view original, size_t begin) {
  AlignedText result;
  result.begin_ = static_cast<uint32_t>(begin);
  result.text_ = original;
  result.from_.reserve(original.size());
  for (size_t at = 0; at < original.size();) {
    const size_t size = Utf8Length(original[at]);
    const TextSpan span{static_cast<uint32_t>(begin + at),
                        static_cast<uint32_t>(begin + at + size)};
    result.from_.insert(result.from_.end(), size, span);
    at += size;
  }
  return result;
}

AlignedText AlignedText::EmptyLike(const AlignedText& source) {
  AlignedText result;
  result.begin_ = source.begin_;
  return result;
}

AlignedText AlignedText::Slice(size_t begin, size_t end) const {
  AlignedText result;
  result.begin_ = begin < end ? from_[begin].begin : begin_;
  result.Append(*this, begin, end);
  return result;
}

void AlignedText::Append(std::string_view bytes, TextSpan from) {
  text_.append(bytes);
  from_.insert(from_.end(), bytes.size(), from);
}

void AlignedText::Append(const AlignedText& source, size_t begin, size_t end) {
  text_.append(source.text_, begin, end - begin);
  from_.insert(from_.end(), source.from_.begin() + static_cast<ptrdiff_t>(begin),
               source.from_.begin() + static_cast<ptrdiff_t>(end));
}

void AlignedText::Transform(std::span<const CharChange> changes) {
  AlignedText result = EmptyLike(*this);
  size_t at = 0;  // the old text before this was processed
  const auto skip = [&] {
    if (at < text_.size()) at += Utf8Length(text_[at]);
  };
  std::string bytes;
  for (const CharChange& c : changes) {
    bytes.clear();
    AppendUtf8(c.code, bytes);
    if (c.change > 0) {
      result.Append(bytes, at == 0 ? TextSpan{begin_, begin_} : from_[at - 1]);
      continue;
    }
    result.Append(bytes, at < from_.size() ? from_[at] : TextSpan{begin_, begin_});
    skip();
    for (int32_t left = -c.change; left > 0; --left) skip();
  }
  *this = std::move(result);
}

void AlignedText::Prepend(std::string_view prefix) {
  if (text_.empty()) return;
  AlignedText result = EmptyLike(*this);
  result.Append(prefix, from_[0]);
  result.Append(*this, 0, text_.size());
  *this = std::move(result);
}

}  // namespace nereid::tokenizer
