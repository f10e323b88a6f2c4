// See aligned_text.h.
#include "backends/tokenizer/lib/text/aligned_text.h"

#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {

AlignedText AlignedText::Of(std::string_view original, size_t begin) {
  AlignedText made;
  made.begin_ = static_cast<uint32_t>(begin);
  made.text_ = original;
  made.from_.reserve(original.size());
  for (size_t at = 0; at < original.size();) {
    const size_t size = Utf8Length(original[at]);
    const TextSpan span{static_cast<uint32_t>(begin + at),
                        static_cast<uint32_t>(begin + at + size)};
    made.from_.insert(made.from_.end(), size, span);
    at += size;
  }
  return made;
}

AlignedText AlignedText::EmptyLike(const AlignedText& source) {
  AlignedText made;
  made.begin_ = source.begin_;
  return made;
}

AlignedText AlignedText::Slice(size_t begin, size_t end) const {
  AlignedText made;
  made.begin_ = begin < end ? from_[begin].begin : begin_;
  made.Append(*this, begin, end);
  return made;
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
  AlignedText made = EmptyLike(*this);
  size_t at = 0;  // what of the old text is used up
  const auto skip = [&] {
    if (at < text_.size()) at += Utf8Length(text_[at]);
  };
  std::string bytes;
  for (const CharChange& c : changes) {
    bytes.clear();
    AppendUtf8(c.code, bytes);
    if (c.change > 0) {
      made.Append(bytes, at == 0 ? TextSpan{begin_, begin_} : from_[at - 1]);
      continue;
    }
    made.Append(bytes, at < from_.size() ? from_[at] : TextSpan{begin_, begin_});
    skip();
    for (int32_t left = -c.change; left > 0; --left) skip();
  }
  *this = std::move(made);
}

void AlignedText::Prepend(std::string_view prefix) {
  if (text_.empty()) return;
  AlignedText made = EmptyLike(*this);
  made.Append(prefix, from_[0]);
  made.Append(*this, 0, text_.size());
  *this = std::move(made);
}

}  // namespace nereid::tokenizer
