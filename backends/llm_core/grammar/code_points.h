// Sets of Unicode characters, and the byte sequences that spell them: UTF-8 by itself, or the
// inside of a JSON string. Surrogates are no characters. [any thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/llm_core/grammar/regex_pool.h"

namespace nereid::llm::grammar {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;
// UTF-16 writes a character beyond U+FFFF as two surrogates, a high and a low one.
inline constexpr uint32_t kFirstHighSurrogate = 0xD800, kFirstLowSurrogate = 0xDC00;
inline constexpr uint32_t kLastSurrogate = 0xDFFF;
constexpr bool IsHighSurrogate(uint32_t number) {
  return number >= kFirstHighSurrogate && number < kFirstLowSurrogate;
}
constexpr bool IsLowSurrogate(uint32_t number) {
  return number >= kFirstLowSurrogate && number <= kLastSurrogate;
}
constexpr bool IsSurrogate(uint32_t number) {
  return IsHighSurrogate(number) || IsLowSurrogate(number);
}
constexpr uint32_t FromSurrogates(uint32_t high, uint32_t low) {
  return 0x10000 + ((high - kFirstHighSurrogate) << 10) + (low - kFirstLowSurrogate);
}

// Sorted ranges that neither overlap nor touch.
class CodePointSet {
 public:
  struct Range {
    uint32_t first, last;
  };

  CodePointSet() = default;
  static CodePointSet Of(uint32_t first, uint32_t last) { return CodePointSet({{first, last}}); }
  static CodePointSet All();
  explicit CodePointSet(std::vector<Range> ranges);

  CodePointSet Union(const CodePointSet& other) const;
  CodePointSet Complement() const;
  CodePointSet Without(const CodePointSet& other) const {
    return Complement().Union(other).Complement();
  }
  CodePointSet Within(uint32_t first, uint32_t last) const;
  // Adds the other case of ASCII letters.
  CodePointSet IgnoringCase() const;
  bool Has(uint32_t code_point) const;
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

// How the characters of a text are spelled.
enum class Spelling {
  kUtf8,
  // Inside a JSON string: quotes, backslashes and control characters are escaped, and characters
  // outside of ASCII may be written as \uXXXX. Other characters are not escaped needlessly, except
  // that a slash may be.
  kJson,
  // As kJson, but every character may be written as \uXXXX.
  kJsonAnyEscape,
};

// One character of `set`.
RegexId SpellSet(RegexPool& pool, const CodePointSet& set, Spelling spelling);
// All spellings of a text, which is valid UTF-8.
RegexId SpellText(RegexPool& pool, std::string_view text, Spelling spelling);

// Reads one character of valid UTF-8 at `pos` and moves `pos` behind it.
uint32_t ReadUtf8(std::string_view text, size_t& pos);
bool IsUtf8(std::string_view text);
void AppendUtf8(uint32_t code_point, std::string& out);

}  // namespace nereid::llm::grammar
