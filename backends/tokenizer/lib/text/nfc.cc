// Unicode normalization (Unicode standard, section 3.11): decompose, order the marks, compose. Only
// the sections of a text that can change are processed.
#include <algorithm>
#include <span>
#include <vector>

#include "backends/tokenizer/lib/text/unicode.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

constexpr uint32_t kCombiningRuns[] = {
#define UNICODE_COMBINING_RUNS
#include "backends/tokenizer/lib/text/unicode_tables.inc"
#undef UNICODE_COMBINING_RUNS
};

struct Decomposition {
  char32_t code, first, second;  // second is 0 for a singleton
  bool composes;
};

constexpr Decomposition kDecompositions[] = {
#define UNICODE_DECOMPOSITIONS
#include "backends/tokenizer/lib/text/unicode_tables.inc"
#undef UNICODE_DECOMPOSITIONS
};

struct Compatibility {
  char32_t code;
  uint16_t offset, size;  // in kCompatibilityText
};

constexpr Compatibility kCompatibilities[] = {
#define UNICODE_COMPATIBILITY
#include "backends/tokenizer/lib/text/normalizer_tables.inc"
#undef UNICODE_COMPATIBILITY
};

constexpr char32_t kCompatibilityText[] = {
#define UNICODE_COMPATIBILITY_TEXT
#include "backends/tokenizer/lib/text/normalizer_tables.inc"
#undef UNICODE_COMPATIBILITY_TEXT
};

// Hangul syllables are decomposed and composed arithmetically.
constexpr char32_t kS = 0xAC00, kL = 0x1100, kV = 0x1161, kT = 0x11A7;
constexpr char32_t kNumL = 19, kNumV = 21, kNumT = 28, kNumS = kNumL * kNumV * kNumT;

uint8_t CombiningClass(char32_t c) {
  const auto* run =
      std::upper_bound(std::begin(kCombiningRuns), std::end(kCombiningRuns), c << 8 | 0xFF);
  return run == std::begin(kCombiningRuns) ? 0 : static_cast<uint8_t>(run[-1] & 0xFF);
}

const Decomposition* FindDecomposition(char32_t c) {
  const auto* it =
      std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), c,
                       [](const Decomposition& d, char32_t code) { return d.code < code; });
  return it != std::end(kDecompositions) && it->code == c ? it : nullptr;
}

const Compatibility* FindCompatibility(char32_t c) {
  const auto* it =
      std::lower_bound(std::begin(kCompatibilities), std::end(kCompatibilities), c,
                       [](const Compatibility& d, char32_t code) { return d.code < code; });
  return it != std::end(kCompatibilities) && it->code == c ? it : nullptr;
}

struct Composition {
  uint64_t pair;  // first << 32 | second
  char32_t code;
};

const std::vector<Composition>& Compositions() {
  static const std::vector<Composition> compositions = [] {
    std::vector<Composition> list;
    for (const Decomposition& d : kDecompositions) {
      if (d.composes) list.push_back({uint64_t{d.first} << 32 | d.second, d.code});
    }
    std::sort(list.begin(), list.end(),
              [](const Composition& a, const Composition& b) { return a.pair < b.pair; });
    return list;
  }();
  return compositions;
}

// Returns the composite of `first` and `second`, or 0.
char32_t Compose(char32_t first, char32_t second) {
  if (first >= kL && first < kL + kNumL && second >= kV && second < kV + kNumV) {
    return kS + ((first - kL) * kNumV + (second - kV)) * kNumT;
  }
  if (first >= kS && first < kS + kNumS && (first - kS) % kNumT == 0 && second > kT &&
      second < kT + kNumT) {
    return first + (second - kT);
  }
  const uint64_t pair = uint64_t{first} << 32 | second;
  const auto& list = Compositions();
  const auto it = std::lower_bound(list.begin(), list.end(), pair,
                                   [](const Composition& c, uint64_t p) { return c.pair < p; });
  return it != list.end() && it->pair == pair ? it->code : 0;
}

struct DecomposedChar {
  char32_t code;
  uint8_t combining;
  int16_t change = 0;  // as CharChange::change
};

void AppendDecomposed(char32_t c, std::vector<DecomposedChar>& out) {
  if (c >= kS && c < kS + kNumS) {
    const char32_t index = c - kS;
    out.push_back({kL + index / (kNumV * kNumT), 0});
    out.push_back({kV + index % (kNumV * kNumT) / kNumT, 0});
    if (index % kNumT != 0) out.push_back({kT + index % kNumT, 0});
    return;
  }
  if (const Decomposition* d = FindDecomposition(c)) {
    AppendDecomposed(d->first, out);
    if (d->second != 0) AppendDecomposed(d->second, out);
    return;
  }
  out.push_back({c, CombiningClass(c)});
}

void AppendCompatible(char32_t c, std::vector<DecomposedChar>& out) {
  const Compatibility* compatibility = FindCompatibility(c);
  if (compatibility == nullptr) return AppendDecomposed(c, out);
  for (size_t i = 0; i < compatibility->size; ++i) {
    const char32_t part = kCompatibilityText[compatibility->offset + i];
    out.push_back({part, CombiningClass(part)});
  }
}

void OrderMarks(std::vector<DecomposedChar>& symbols) {
  for (auto it = symbols.begin(); it != symbols.end();) {
    const auto begin =
        std::find_if(it, symbols.end(), [](DecomposedChar s) { return s.combining != 0; });
    it = std::find_if(begin, symbols.end(), [](DecomposedChar s) { return s.combining == 0; });
    std::stable_sort(begin, it,
                     [](DecomposedChar a, DecomposedChar b) { return a.combining < b.combining; });
  }
}

// Composes in place and returns the remaining characters.
std::span<const DecomposedChar> ComposeAll(std::vector<DecomposedChar>& symbols) {
  size_t kept = 0;
  size_t starter = SIZE_MAX;  // index of the last kept starter
  for (const DecomposedChar symbol : symbols) {
    if (starter != SIZE_MAX) {
      const bool adjacent = kept == starter + 1;
      const uint8_t last = symbols[kept - 1].combining;
      if (adjacent || (last != 0 && last < symbol.combining)) {
        if (const char32_t composite = Compose(symbols[starter].code, symbol.code)) {
          symbols[starter].code = composite;
          symbols[starter].change =
              static_cast<int16_t>(symbols[starter].change + symbol.change - 1);
          continue;
        }
      }
    }
    if (symbol.combining == 0) starter = kept;
    symbols[kept++] = symbol;
  }
  return {symbols.data(), kept};
}

void AppendComposed(std::string_view text, std::vector<DecomposedChar>& scratch, std::string& out) {
  scratch.clear();
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = CharAt(text, at);
    at += c.size;
    AppendDecomposed(c.code, scratch);
  }
  OrderMarks(scratch);
  for (const DecomposedChar symbol : ComposeAll(scratch)) AppendUtf8(symbol.code, out);
}

}  // namespace

void ForEachNfcActive(const std::function<void(char32_t begin, char32_t end)>& visit) {
  for (size_t i = 0; i + 1 < std::size(kCombiningRuns); ++i) {
    if ((kCombiningRuns[i] & 0xFF) != 0) visit(kCombiningRuns[i] >> 8, kCombiningRuns[i + 1] >> 8);
  }
  for (const Decomposition& d : kDecompositions) {
    visit(d.code, d.code + 1);
    if (d.composes) visit(d.second, d.second + 1);
  }
  visit(kV, kV + kNumV);
  visit(kT + 1, kT + kNumT);
}

void AppendNfc(std::string_view text, std::string& out) {
  const UnicodeTables& tables = UnicodeTables::Get();
  std::vector<DecomposedChar> scratch;
  size_t copied = 0;  // the text before this was appended
  size_t last = 0;    // start of the last inert character, which following marks may join
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = CharAt(text, at);
    if (tables.IsNfcInert(c.code)) {
      last = at;
      at += c.size;
      continue;
    }
    size_t end = at + c.size;
    while (end < text.size()) {
      const Utf8Char next = CharAt(text, end);
      if (tables.IsNfcInert(next.code)) break;
      end += next.size;
    }
    out.append(text, copied, last - copied);
    AppendComposed(text.substr(last, end - last), scratch, out);
    copied = last = at = end;
  }
  out.append(text, copied, text.size() - copied);
}

void AppendNormalForm(std::string_view text, NormalForm form, std::string& out) {
  if (form == NormalForm::kNfc) return AppendNfc(text, out);
  std::vector<DecomposedChar> symbols;
  for (size_t at = 0; at < text.size();) {
    // ASCII characters do not change, but the last one of a run may compose with the next
    // character.
    size_t plain = at;
    while (plain < text.size() && static_cast<unsigned char>(text[plain]) < 0x80) ++plain;
    if (plain > at && plain < text.size()) --plain;
    out.append(text, at, plain - at);
    symbols.clear();
    for (at = plain; at < text.size();) {
      const Utf8Char c = CharAt(text, at);
      if (c.code < 0x80 && at > plain) break;
      at += c.size;
      if (form == NormalForm::kNfd) {
        AppendDecomposed(c.code, symbols);
      } else {
        AppendCompatible(c.code, symbols);
      }
    }
    OrderMarks(symbols);
    const std::span<const DecomposedChar> left =
        form == NormalForm::kNfkc ? ComposeAll(symbols) : std::span<const DecomposedChar>(symbols);
    for (const DecomposedChar symbol : left) AppendUtf8(symbol.code, out);
  }
}

std::vector<CharChange> NormalFormChanges(std::string_view text, NormalForm form) {
  std::vector<DecomposedChar> symbols;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = CharAt(text, at);
    at += c.size;
    const size_t first = symbols.size();
    if (form == NormalForm::kNfc || form == NormalForm::kNfd) {
      AppendDecomposed(c.code, symbols);
    } else {
      AppendCompatible(c.code, symbols);
    }
    for (size_t i = first + 1; i < symbols.size(); ++i) symbols[i].change = 1;
  }
  OrderMarks(symbols);
  const bool composes = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const std::span<const DecomposedChar> left =
      composes ? ComposeAll(symbols) : std::span<const DecomposedChar>(symbols);
  std::vector<CharChange> changes;
  changes.reserve(left.size());
  for (const DecomposedChar& symbol : left) changes.push_back({symbol.code, symbol.change});
  return changes;
}

}  // namespace nereid::tokenizer
