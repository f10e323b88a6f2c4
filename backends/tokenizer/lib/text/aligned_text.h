// Text that knows where it came from: each of its bytes has the stretch of the original text that
// it stands for. What normalizers and pre-tokenizers do to a text when offsets are wanted; the
// rules of alignment are those of the reference. [one thread at a time]
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::tokenizer {

// Bytes [begin, end) of a text.
struct TextSpan {
  uint32_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

// A character of a rewritten text. 0: in the place of the next old one; 1: added behind; -n: in the
// place of the next, and the n behind that vanish.
struct CharChange {
  char32_t code;
  int32_t change;
};

class AlignedText {
 public:
  AlignedText() = default;
  // The original itself, valid UTF-8, whose first byte is at `begin` of the whole.
  static AlignedText Of(std::string_view original, size_t begin = 0);

  const std::string& text() const { return text_; }
  // What text()[begin, end) came from; not for empty stretches.
  TextSpan Origin(size_t begin, size_t end) const {
    return {from_[begin].begin, from_[end - 1].end};
  }
  AlignedText Slice(size_t begin, size_t end) const;

  // Rewrites the text character by character. `changes` covers all of it.
  void Transform(std::span<const CharChange> changes);
  // Puts `prefix` in front, as if it came from the first character. An empty text stays so.
  void Prepend(std::string_view prefix);

  // For building a rewritten text: bytes that come from those at `at` of `source`, or copies.
  void Append(std::string_view bytes, TextSpan from);
  void Append(const AlignedText& source, size_t begin, size_t end);
  // An empty text that stands where `source` stands.
  static AlignedText EmptyLike(const AlignedText& source);
  TextSpan from(size_t at) const { return from_[at]; }

 private:
  std::string text_;
  std::vector<TextSpan> from_;  // [text_.size()]
  uint32_t begin_ = 0;          // where the original of this piece begins
};

}  // namespace nereid::tokenizer
