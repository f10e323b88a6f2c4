// Patterns of pre-tokenizers without a regular expression (see pattern.h).
#include "backends/tokenizer/lib/pattern/pattern.h"

#include "backends/tokenizer/lib/text/char_traits.h"
#include "backends/tokenizer/lib/text/unicode.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

// Matches every single character for which `Test` is true.
template <bool (*Test)(char32_t)>
class CharPattern : public Pattern {
 public:
  bool ForEachSpan(std::string_view text, SpanSink& sink) const override {
    size_t covered = 0;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = CharAt(text, at);
      if (Test(c.code)) {
        if (covered < at && !sink.Add(text.substr(covered, at - covered), false)) return false;
        if (!sink.Add(text.substr(at, c.size), true)) return false;
        covered = at + c.size;
      }
      at += c.size;
    }
    return covered == text.size() || sink.Add(text.substr(covered), false);
  }
};

// Matches runs of characters of the same kind. Kind 0 does not match. A character of kind kJoins
// continues any run; without a preceding run it does not match.
template <int (*KindOf)(char32_t)>
class KindPattern : public Pattern {
 public:
  static constexpr int kJoins = -1;

  bool ForEachSpan(std::string_view text, SpanSink& sink) const override {
    size_t begin = 0;
    int kind = kJoins;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = CharAt(text, at);
      const int next = KindOf(c.code);
      if (begin < at && next != kJoins && next != kind) {
        if (!sink.Add(text.substr(begin, at - begin), kind > 0)) return false;
        begin = at;
      }
      if (next != kJoins) kind = next;
      at += c.size;
    }
    return begin == text.size() || sink.Add(text.substr(begin), kind > 0);
  }
};

bool IsPunctuation(char32_t c) {
  return (TraitsOf(c) & kBertPunctuation) != 0;
}

int WordKind(char32_t c) {
  return IsWordChar(c) ? 1 : IsSpaceChar(c) ? 0 : 2;
}

int ScriptKind(char32_t c) {
  const int script = ScriptOf(c);
  return script == 0 ? -1 : script;
}

}  // namespace

std::unique_ptr<const Pattern> MakeSpacePattern() {
  return std::make_unique<CharPattern<IsSpaceChar>>();
}

std::unique_ptr<const Pattern> MakePunctuationPattern() {
  return std::make_unique<CharPattern<IsPunctuation>>();
}

std::unique_ptr<const Pattern> MakeWordPattern() {
  return std::make_unique<KindPattern<WordKind>>();
}

std::unique_ptr<const Pattern> MakeScriptPattern() {
  return std::make_unique<KindPattern<ScriptKind>>();
}

}  // namespace nereid::tokenizer
