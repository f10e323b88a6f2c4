// A view of a text as character classes, for the hand-written matchers. It is inline because it is
// the innermost loop of encoding. [any thread]
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "backends/tokenizer/lib/text/unicode.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {

inline constexpr std::array<ClassMask, 128> kAsciiMask = [] {
  std::array<ClassMask, 128> mask{};
  for (int c = 0; c < 128; ++c) {
    const bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
    const bool digit = c >= '0' && c <= '9', space = (c >= 9 && c <= 13) || c == ' ';
    const bool symbol = c == '$' || c == '+' || c == '<' || c == '=' || c == '>' || c == '^' ||
                        c == '`' || c == '|' || c == '~';
    mask[c] = upper               ? kMaskLu
              : lower             ? kMaskLl
              : digit             ? MaskOf(CharClass::kNd)
              : space             ? kSpace
              : symbol            ? kSymbol
              : c == '_'          ? MaskOf(CharClass::kPc)
              : c > 32 && c < 127 ? MaskOf(CharClass::kPunct)
                                  : MaskOf(CharClass::kOther);
  }
  return mask;
}();

struct CharInfo {
  ClassMask mask;  // 0 at the end of the text
  uint32_t size;   // in bytes; 0 at the end
  char32_t code;

  bool Is(ClassMask classes) const { return (mask & classes) != 0; }
};

class CharScan {
 public:
  explicit CharScan(std::string_view text) : text_(text), tables_(UnicodeTables::Get()) {}

  size_t size() const { return text_.size(); }

  CharInfo At(size_t at) const {
    if (at >= text_.size()) return {0, 0, 0};
    const auto lead = static_cast<unsigned char>(text_[at]);
    if (lead < 0x80) return {kAsciiMask[lead], 1, lead};
    const Utf8Char c = CharAt(text_, at);
    return {tables_.Mask(c.code), c.size, c.code};
  }

  // Returns the end of the run of characters in `classes` that starts at `at`.
  size_t Run(size_t at, ClassMask classes) const {
    while (true) {
      while (at < text_.size() && static_cast<unsigned char>(text_[at]) < 0x80) {
        if ((kAsciiMask[static_cast<unsigned char>(text_[at])] & classes) == 0) return at;
        ++at;
      }
      const CharInfo c = At(at);
      if (!c.Is(classes)) return at;
      at += c.size;
    }
  }

  // The same for at most `limit` characters.
  size_t Run(size_t at, ClassMask classes, size_t limit) const {
    for (; limit > 0; --limit) {
      const CharInfo c = At(at);
      if (!c.Is(classes)) break;
      at += c.size;
    }
    return at;
  }

  size_t RunOfNewlines(size_t at) const {
    while (at < text_.size() && (text_[at] == '\n' || text_[at] == '\r')) ++at;
    return at;
  }

  char ByteAt(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }

 private:
  std::string_view text_;
  const UnicodeTables& tables_;
};

}  // namespace nereid::tokenizer
