// Hand-written matchers of the split patterns of GPT-2, Llama 3, Qwen 2, GPT-4, GPT-4o, Tekken and
// DeepSeek. MatchAt returns the end of what the regular expression would match at one position,
// trying the alternatives in order, or kNoMatch. Each position is visited a bounded number of
// times.
#include <vector>

#include "backends/tokenizer/lib/pattern/pattern.h"
#include "backends/tokenizer/lib/text/char_scan.h"

namespace nereid::tokenizer {
namespace {

constexpr size_t kNoMatch = 0;
constexpr ClassMask kLetterOrNumber = kLetter | kNumber;
constexpr ClassMask kAny = 0xFFFF;
constexpr ClassMask kNotSpaceLetterNumber = kAny & ~(kSpace | kLetterOrNumber);

bool IsNewline(char32_t c) {
  return c == '\n' || c == '\r';
}

bool IsAsciiLetter(char c) {
  return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

// `\s+(?!\S)|\s+` on the whole run of spaces [at, end): the last space belongs to the next word.
size_t MatchSpaces(const CharScan& scan, size_t at, size_t end, std::string_view text) {
  if (end == scan.size()) return end;
  size_t last = end - 1;
  while (IsContinuation(text[last])) --last;
  return last > at ? last : end;
}

// `\s*[\r\n]+|\s+(?!\S)|\s+` at `at`, where there is a space.
size_t MatchLinesOrSpaces(const CharScan& scan, size_t at, std::string_view text) {
  const size_t end = scan.Run(at, kSpace);
  for (size_t last = end; last > at; --last) {
    if (IsNewline(static_cast<unsigned char>(text[last - 1]))) return last;
  }
  return MatchSpaces(scan, at, end, text);
}

// Returns the length of `s|t|re|ve|m|ll|d` at `at`, or 0.
template <bool kIgnoreCase>
size_t ContractionLength(const CharScan& scan, size_t at) {
  const auto letter = [&](size_t i) {
    const char c = scan.ByteAt(i);
    return kIgnoreCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  const char first = letter(at), second = letter(at + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 1;
  if ((first == 'r' || first == 'v') && second == 'e') return 2;
  if (first == 'l' && second == 'l') return 2;
  // U+017F matches 's' case-insensitively.
  if (kIgnoreCase && first == '\xC5' && scan.ByteAt(at + 1) == '\xBF') return 2;
  return 0;
}

struct Gpt2 {
  static size_t MatchAt(const CharScan& scan, size_t at, std::string_view text) {
    const CharInfo c = scan.At(at);
    if (c.code == '\'') {
      if (const size_t n = ContractionLength<false>(scan, at + 1)) return at + 1 + n;
    }
    const size_t word = c.code == ' ' ? at + 1 : at;
    const CharInfo first = c.code == ' ' ? scan.At(word) : c;
    if (first.Is(kLetter)) return scan.Run(word, kLetter);
    if (first.Is(kNumber)) return scan.Run(word, kNumber);
    if (first.Is(kNotSpaceLetterNumber)) return scan.Run(word, kNotSpaceLetterNumber);
    return MatchSpaces(scan, at, scan.Run(at, kSpace), text);
  }
};

// Llama 3 has up to three digits per pre-token, Qwen 2 has one. cl100k also joins all spaces at the
// end of the text.
template <size_t kMaxDigits, bool kJoinsLastSpaces = false>
struct Cl100k {
  static size_t MatchAt(const CharScan& scan, size_t at, std::string_view text) {
    const CharInfo c = scan.At(at);
    if (c.Is(kLetter)) return scan.Run(at, kLetter);
    if (c.code == '\'') {
      if (const size_t n = ContractionLength<true>(scan, at + 1)) return at + 1 + n;
    }
    if (c.Is(kNumber)) return scan.Run(at, kNumber, kMaxDigits);
    const CharInfo next = scan.At(at + c.size);
    if (!IsNewline(c.code) && next.Is(kLetter)) return scan.Run(at + c.size, kLetter);
    if (c.Is(kNotSpaceLetterNumber) || (c.code == ' ' && next.Is(kNotSpaceLetterNumber))) {
      return scan.RunOfNewlines(scan.Run(at + c.size, kNotSpaceLetterNumber));
    }
    if (kJoinsLastSpaces && scan.Run(at, kSpace) == scan.size()) return scan.size();
    return MatchLinesOrSpaces(scan, at, text);
  }
};

// Tekken has one digit per pre-token. o200k has up to three, and its words include a contraction.
template <size_t kMaxDigits, bool kContracts>
struct CasedWords {
  static constexpr ClassMask kBoth = kMaskLm | kMaskLo | kMark;
  static constexpr ClassMask kUpper = kMaskLu | kMaskLt | kBoth;
  static constexpr ClassMask kLower = kMaskLl | kBoth;

  static size_t MatchWord(const CharScan& scan, size_t at, bool or_upper) {
    const size_t end = MatchLetters(scan, at, or_upper);
    if (!kContracts || end == kNoMatch || scan.ByteAt(end) != '\'') return end;
    const size_t n = ContractionLength<true>(scan, end + 1);
    return n > 0 ? end + 1 + n : end;
  }

  // Matches `[kUpper]*[kLower]+` at `at`; if that fails and `or_upper`, `[kUpper]+[kLower]*`.
  static size_t MatchLetters(const CharScan& scan, size_t at, bool or_upper) {
    size_t both_end = kNoMatch;  // end of the last character that could start [kLower]+
    size_t end = at;
    CharInfo c = scan.At(end);
    for (; c.Is(kUpper); c = scan.At(end)) {
      end += c.size;
      if (c.Is(kBoth)) both_end = end;
    }
    if (c.Is(kLower)) return scan.Run(end, kLower);
    if (both_end != kNoMatch) return both_end;
    return or_upper && end > at ? end : kNoMatch;
  }

  static size_t MatchAt(const CharScan& scan, size_t at, std::string_view text) {
    const CharInfo c = scan.At(at);
    if (!IsNewline(c.code) && !c.Is(kLetterOrNumber)) {
      if (const size_t end = MatchWord(scan, at + c.size, !c.Is(kMark))) return end;
    }
    if (c.Is(kLetter | kMark)) return MatchWord(scan, at, true);
    if (c.Is(kNumber)) return scan.Run(at, kNumber, kMaxDigits);
    if (c.Is(kNotSpaceLetterNumber) ||
        (c.code == ' ' && scan.At(at + 1).Is(kNotSpaceLetterNumber))) {
      size_t end = scan.Run(at + c.size, kNotSpaceLetterNumber);
      while (IsNewline(static_cast<unsigned char>(scan.ByteAt(end))) || scan.ByteAt(end) == '/') {
        ++end;
      }
      return end;
    }
    return MatchLinesOrSpaces(scan, at, text);
  }
};

struct DeepSeek {
  static size_t MatchAt(const CharScan& scan, size_t at, std::string_view text) {
    const CharInfo c = scan.At(at);
    if (c.code < 0x80 && c.Is(kPunct | kSymbol)) {
      size_t end = at + 1;
      while (IsAsciiLetter(scan.ByteAt(end))) ++end;
      if (end > at + 1) return end;
    }
    const CharInfo next = scan.At(at + c.size);
    const bool joins = !IsNewline(c.code) && !c.Is(kLetter | kPunct | kSymbol);
    if (c.Is(kLetter | kMark)) return scan.Run(at + c.size, kLetter | kMark);
    if (joins && next.Is(kLetter | kMark)) return scan.Run(at + c.size, kLetter | kMark);
    if (c.Is(kPunct | kSymbol) || (c.code == ' ' && next.Is(kPunct | kSymbol))) {
      return scan.RunOfNewlines(scan.Run(at + c.size, kPunct | kSymbol));
    }
    return c.Is(kSpace) ? MatchLinesOrSpaces(scan, at, text) : kNoMatch;
  }
};

template <typename Matcher>
class KnownPattern : public Pattern {
 public:
  explicit KnownPattern(Matcher matcher = {}) : matcher_(std::move(matcher)) {}

  bool ForEachSpan(std::string_view text, SpanSink& sink) const override {
    const CharScan scan(text);
    size_t previous = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t end = matcher_.MatchAt(scan, at, text);
      if (end == kNoMatch) {
        at += Utf8Length(text[at]);
        continue;
      }
      if (previous < at && !sink.Add(text.substr(previous, at - previous), false)) return false;
      if (!sink.Add(text.substr(at, end - at), true)) return false;
      previous = at = end;
    }
    return previous == text.size() || sink.Add(text.substr(previous), false);
  }

 private:
  Matcher matcher_;
};

// Matches `\s?` (if `joins_space`), then 1 to `limit` characters of the classes or ranges.
struct ClassRun {
  bool joins_space = false;
  ClassMask classes = 0;
  std::vector<CodeRange> ranges;
  size_t limit = SIZE_MAX;

  bool Contains(const CharInfo& c) const {
    if (c.Is(classes)) return true;
    for (const CodeRange& range : ranges) {
      if (c.size != 0 && c.code >= range.first && c.code <= range.last) return true;
    }
    return false;
  }

  size_t MatchAt(const CharScan& scan, size_t at, std::string_view) const {
    CharInfo c = scan.At(at);
    if (joins_space && c.Is(kSpace)) {
      at += c.size;
      c = scan.At(at);
    }
    if (!Contains(c)) return kNoMatch;
    for (size_t n = 0; n < limit && Contains(c); ++n) {
      at += c.size;
      c = scan.At(at);
    }
    return at;
  }
};

template <typename Matcher>
std::unique_ptr<const Pattern> Make(Matcher matcher = {}) {
  return std::make_unique<KnownPattern<Matcher>>(std::move(matcher));
}

std::unique_ptr<const Pattern> MakeClassRun(std::string_view regex) {
  const auto run = [](ClassRun r) { return Make<ClassRun>(std::move(r)); };
  if (regex == R"(\p{N})") return run({false, kNumber, {}, 1});
  if (regex == R"(\p{N}{1,3})") return run({false, kNumber, {}, 3});
  if (regex == R"([\r\n])") return run({false, 0, {{'\n', '\n'}, {'\r', '\r'}}, 1});
  if (regex == R"(\s?\p{L}+)") return run({true, kLetter, {}, SIZE_MAX});
  if (regex == R"(\s?\p{P}+)") return run({true, kPunct, {}, SIZE_MAX});
  if (regex == "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+") {
    return run({false, 0, {{0x4E00, 0x9FA5}, {0x3040, 0x309F}, {0x30A0, 0x30FF}}, SIZE_MAX});
  }
  if (regex == "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+") {
    return run({false, 0, {{0x4E00, 0x9FA5}, {0x0800, 0x4E00}, {0xAC00, 0xD7FF}}, SIZE_MAX});
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<const Pattern> MakeKnownPattern(std::string_view regex) {
  if (regex == kGpt2Pattern) return Make<Gpt2>();
  if (regex ==
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)") {
    return Make<Cl100k<3>>();
  }
  if (regex ==
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)") {
    return Make<Cl100k<1>>();
  }
  if (regex ==
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)") {
    return Make<Cl100k<3, true>>();
  }
  if (regex ==
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)") {
    return Make<CasedWords<1, false>>();
  }
  if (regex ==
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)") {
    return Make<CasedWords<3, true>>();
  }
  if (regex ==
      "[!\"#$%&'()*+,\\-./"
      ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+") {
    return Make<DeepSeek>();
  }
  return MakeClassRun(regex);
}

std::unique_ptr<const Pattern> MakeDigitPattern() {
  return Make<ClassRun>({false, kNumber | MaskOf(CharClass::kNumeric17), {}, 1});
}

}  // namespace nereid::tokenizer
