// A rewritten text in which each byte keeps the range of the original text that it corresponds to.
// Normalizers and pre-tokenizers use it if offsets are requested. The alignment rules are those of
// the reference library, PyPI tokenizers. [one thread at a time]
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::tokenizer {

// The range [begin, end) of a text.
struct TextSpan {
  uint32_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
};

// One character of a rewritten text. `change` 0: it replaces the next old character. 1: it is
// inserted after the previous one. -n: it replaces the next old character, and the n old characters
// after that are removed.
struct CharChange {
  char32_t code;
  int32_t change;
};

class AlignedText {
 public:
  AlignedText() = default;
  // The original text, valid UTF-8, which starts at byte `begin` of the whole input.
  static AlignedText Of(std::string_view original, size_t begin = 0);

  const std::string& text() const { return text_; }
  // Whether this part begins at the first byte of the original text, as the reference sees it: a
  // part that was cut from a rewritten text begins where its first character came from. Text that a
  // normalizer removed at the start therefore moves the beginning.
  bool is_at_start() const { return begin_ == 0; }
  // Returns the original range of text()[begin, end), which must not be empty.
  TextSpan Origin(size_t begin, size_t end) const {
    return {from_[begin].begin, from_[end - 1].end};
  }
  AlignedText Slice(size_t begin, size_t end) const;

  // Rewrites the text character by character. `changes` covers the whole text.
  void Transform(std::span<const CharChange> changes);
  // Inserts `prefix` at the start, aligned with the first character. An empty text stays empty.
  void Prepend(std::string_view prefix);

  // For building a rewritten text: appends bytes that correspond to `from`, or copies a range of
  // `source`.
  void Append(std::string_view bytes, TextSpan from);
  void Append(const AlignedText& source, size_t begin, size_t end);
  // An empty text at the same position as `source`.
  static AlignedText EmptyLike(const AlignedText& source);
  TextSpan from(size_t at) const { return from_[at]; }

 private:
  std::string text_;
  std::vector<TextSpan> from_;  // [text_.size()]
  uint32_t begin_ = 0;          // start of this section in the original text
};

}  // namespace nereid::tokenizer
