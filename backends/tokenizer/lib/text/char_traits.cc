// See char_traits.h.
#include "backends/tokenizer/lib/text/char_traits.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "backends/tokenizer/lib/text/unicode.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

constexpr uint32_t kTraitRuns[] = {
#define UNICODE_TRAIT_RUNS
#include "backends/tokenizer/lib/text/normalizer_tables.inc"
#undef UNICODE_TRAIT_RUNS
};

constexpr uint32_t kScriptRuns[] = {
#define UNICODE_SCRIPT_RUNS
#include "backends/tokenizer/lib/text/normalizer_tables.inc"
#undef UNICODE_SCRIPT_RUNS
};

struct Lowercase {
  char32_t code, first, second;
};

constexpr Lowercase kLowercase[] = {
#define UNICODE_LOWERCASE
#include "backends/tokenizer/lib/text/normalizer_tables.inc"
#undef UNICODE_LOWERCASE
};

// Grapheme_Cluster_Break, in bits 4 to 6 of the traits table.
enum class Grapheme : uint8_t {
  kAny,
  kControl,
  kExtend,
  kZwj,
  kSpacingMark,
  kPrepend,
  kRegional,
  kPictographic
};

// One byte per code point, in blocks of 256; equal blocks are shared.
class RunTable {
 public:
  RunTable(const uint32_t* begin, const uint32_t* end) {
    std::string flat(0x110000, '\0');
    for (const uint32_t* run = begin; run != end; ++run) {
      const uint32_t until = run + 1 == end ? 0x110000 : run[1] >> 8;
      std::fill(flat.begin() + (*run >> 8), flat.begin() + until, static_cast<char>(*run));
    }
    std::vector<std::string_view> known;
    for (size_t block = 0; block < block_of_.size(); ++block) {
      const std::string_view content = std::string_view(flat).substr(block << 8, 256);
      const auto it = std::find(known.begin(), known.end(), content);
      block_of_[block] = static_cast<uint16_t>(it - known.begin());
      if (it == known.end()) known.push_back(content);
    }
    for (const std::string_view content : known) blocks_.append(content);
  }

  uint8_t operator[](char32_t c) const {
    return static_cast<uint8_t>(blocks_[block_of_[c >> 8] << 8 | (c & 0xFF)]);
  }

 private:
  std::array<uint16_t, 0x1100> block_of_;
  std::string blocks_;
};

const RunTable& Traits() {
  static const RunTable table(std::begin(kTraitRuns), std::end(kTraitRuns));
  return table;
}

Grapheme GraphemeOf(char32_t c) {
  return static_cast<Grapheme>(Traits()[c] >> 4);
}

// Hangul syllable types, which follow from the code point's block.
enum class Hangul { kNone, kL, kV, kT, kLv, kLvt };

Hangul HangulOf(char32_t c) {
  if (c < 0x1100) return Hangul::kNone;
  if (c <= 0x115F || (c >= 0xA960 && c <= 0xA97C)) return Hangul::kL;
  if (c <= 0x11A7 || (c >= 0xD7B0 && c <= 0xD7C6)) return Hangul::kV;
  if (c <= 0x11FF || (c >= 0xD7CB && c <= 0xD7FB)) return Hangul::kT;
  if (c >= 0xAC00 && c <= 0xD7A3) return (c - 0xAC00) % 28 == 0 ? Hangul::kLv : Hangul::kLvt;
  return Hangul::kNone;
}

bool HangulJoins(Hangul left, Hangul right) {
  switch (left) {
    case Hangul::kL:
      return right == Hangul::kL || right == Hangul::kV || right == Hangul::kLv ||
             right == Hangul::kLvt;
    case Hangul::kV:
    case Hangul::kLv:
      return right == Hangul::kV || right == Hangul::kT;
    case Hangul::kT:
    case Hangul::kLvt:
      return right == Hangul::kT;
    default:
      return false;
  }
}

// State of an emoji sequence: a pictograph with its extending characters and a joiner is joined
// with a following pictograph.
enum class Emoji { kNone, kPictograph, kJoined };

Emoji EmojiAfter(Emoji before, Grapheme next) {
  using enum Grapheme;
  if (next == kPictographic) return Emoji::kPictograph;
  if (before != Emoji::kPictograph) return Emoji::kNone;
  return next == kExtend ? Emoji::kPictograph : next == kZwj ? Emoji::kJoined : Emoji::kNone;
}

// Whether there is no boundary between two characters; `emoji` is the state after `left`. A row of
// flags has no boundaries.
bool Joins(char32_t left, Emoji emoji, char32_t right) {
  if (left == '\r' && right == '\n') return true;
  using enum Grapheme;
  const Grapheme before = GraphemeOf(left), after = GraphemeOf(right);
  if (before == kControl || after == kControl) return false;
  if (after == kExtend || after == kZwj || after == kSpacingMark || before == kPrepend) return true;
  if (emoji == Emoji::kJoined && after == kPictographic) return true;
  if (before == kRegional && after == kRegional) return true;
  return HangulJoins(HangulOf(left), HangulOf(right));
}

}  // namespace

uint8_t TraitsOf(char32_t c) {
  return Traits()[c] & 0x0F;
}

bool IsSpaceChar(char32_t c) {
  return (UnicodeTables::Get().Mask(c) & kSpace) != 0;
}

bool IsCjk(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

uint8_t ScriptOf(char32_t c) {
  static const RunTable table(std::begin(kScriptRuns), std::end(kScriptRuns));
  return table[c];
}

void AppendLowercase(char32_t c, std::string& out) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c));
    return;
  }
  const auto* it =
      std::lower_bound(std::begin(kLowercase), std::end(kLowercase), c,
                       [](const Lowercase& l, char32_t code) { return l.code < code; });
  if (it == std::end(kLowercase) || it->code != c) return AppendUtf8(c, out);
  AppendUtf8(it->first, out);
  if (it->second != 0) AppendUtf8(it->second, out);
}

size_t GraphemeEnd(std::string_view text, size_t begin) {
  Utf8Char c = CharAt(text, begin);
  size_t end = begin + c.size;
  Emoji emoji = EmojiAfter(Emoji::kNone, GraphemeOf(c.code));
  while (end < text.size()) {
    const Utf8Char next = CharAt(text, end);
    if (!Joins(c.code, emoji, next.code)) break;
    c = next;
    emoji = EmojiAfter(emoji, GraphemeOf(c.code));
    end += next.size;
  }
  return end;
}

}  // namespace nereid::tokenizer
