// See char_sets.h. The members of a class are found by running PCRE2 on a text of all code points.
#include "backends/tokenizer/lib/pattern/char_sets.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <sstream>

#include "backends/tokenizer/lib/pattern/pattern.h"
#include "backends/tokenizer/lib/text/unicode.h"
#include "backends/tokenizer/lib/text/utf8.h"
#include "nereid/status.h"

namespace nereid::tokenizer {
namespace {

constexpr char32_t kLastCode = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

char32_t Next(char32_t code) {
  return code + 1 == kFirstSurrogate ? kLastSurrogate + 1 : code + 1;
}
char32_t Previous(char32_t code) {
  return code == kLastSurrogate + 1 ? kFirstSurrogate - 1 : code - 1;
}

// Built once, because a tokenizer may have many classes.
const std::string& AllCodePoints() {
  static const std::string all = [] {
    std::string text;
    text.reserve(4'400'000);
    for (char32_t code = 0; code <= kLastCode; code = Next(code)) AppendUtf8(code, text);
    return text;
  }();
  return all;
}

char32_t LastOf(std::string_view text) {
  size_t at = text.size() - 1;
  while (IsContinuation(text[at])) --at;
  return CharAt(text, at).code;
}

}  // namespace

Result<CodePointSet> CodePointSet::OfClass(std::string_view items, bool ignores_case) {
  struct Runs final : SpanSink {
    std::vector<Range> ranges;
    bool Add(std::string_view span, bool is_match) override {
      if (is_match) ranges.push_back({CharAt(span, 0).code, LastOf(span)});
      return true;
    }
  };
  CodePointSet set;
  if (items.empty()) return set;
  NEREID_ASSIGN_OR_RETURN(const auto pattern,
                          CompilePcre(StrCat(ignores_case ? "(?i)[" : "[", items, "]++")));
  Runs runs;
  if (!pattern->ForEachSpan(AllCodePoints(), runs)) {
    return InvalidArgError("class '[", items, "]': its members cannot be found");
  }
  set.ranges_ = std::move(runs.ranges);
  return set;
}

void CodePointSet::Add(const CodePointSet& other) {
  std::vector<Range> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  std::sort(all.begin(), all.end(), [](Range a, Range b) { return a.first < b.first; });
  ranges_.clear();
  for (const Range& range : all) {
    if (!ranges_.empty() && range.first <= Next(ranges_.back().last)) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

void CodePointSet::Intersect(const CodePointSet& other) {
  CodePointSet outside = other;
  outside.Complement();
  Complement();
  Add(outside);
  Complement();
}

void CodePointSet::Complement() {
  std::vector<Range> rest;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) rest.push_back({next, Previous(range.first)});
    next = Next(range.last);
  }
  if (next <= kLastCode) rest.push_back({next, kLastCode});
  ranges_ = std::move(rest);
}

std::string CodePointSet::ToClass() const {
  if (ranges_.empty()) return R"([^\x{0}-\x{10ffff}])";
  std::ostringstream out;
  out << std::hex << "[";
  for (const Range& range : ranges_) {
    out << "\\x{" << uint32_t{range.first} << "}";
    if (range.last > range.first) out << "-\\x{" << uint32_t{range.last} << "}";
  }
  out << "]";
  return out.str();
}

namespace {

constexpr CodeRange kSince14[] = {
#define UNICODE_SINCE_14
#include "backends/tokenizer/lib/text/unicode_tables.inc"
#undef UNICODE_SINCE_14
};

// Returns the classes in UnicodeTables that make up a general category, or 0 if they do not.
ClassMask MaskOfCategory(std::string_view name) {
  if (name == "L") return kLetter;
  if (name == "Lu") return kMaskLu;
  if (name == "Ll") return kMaskLl;
  if (name == "Lt") return kMaskLt;
  if (name == "Lm") return kMaskLm;
  if (name == "Lo") return kMaskLo;
  if (name == "M") return kMark;
  if (name == "N") return kNumber;
  if (name == "Nd") return MaskOf(CharClass::kNd);
  if (name == "P") return kPunct;
  if (name == "Nl") return MaskOf(CharClass::kNl);
  if (name == "No") return MaskOf(CharClass::kNo);
  if (name == "S") return kSymbol;
  return 0;
}

// Returns class members for the code points of `classes` that PCRE2's older Unicode data lacks.
std::string NewerCodePoints(ClassMask classes) {
  const UnicodeTables& tables = UnicodeTables::Get();
  std::ostringstream set;
  set << std::hex;
  for (const CodeRange& range : kSince14) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      if ((tables.Mask(c) & classes) == 0) continue;
      const char32_t first = c;
      while (c < range.last && (tables.Mask(c + 1) & classes) != 0) ++c;
      set << "\\x{" << uint32_t{first} << "}-\\x{" << uint32_t{c} << "}";
    }
  }
  return set.str();
}

struct NamedValue {
  std::string_view name, value;
};
// Code points that were added to scripts after PCRE2's Unicode version, for the scripts that
// published patterns use.
constexpr NamedValue kNewerScriptMembers[] = {
    {"han", R"(\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})"},
    {"hiragana", R"(\x{1b132})"},
    {"katakana", R"(\x{1b155})"},
    {"latin", R"(\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{1df25}-\x{1df2a})"},
    {"cyrillic", R"(\x{1c89}-\x{1c8a}\x{1e030}-\x{1e06d}\x{1e08f})"},
    {"arabic", R"(\x{897}\x{10ec2}-\x{10ec4}\x{10efc}-\x{10eff})"},
    {"devanagari", R"(\x{11b00}-\x{11b09})"},
    {"lao", R"(\x{ece})"},
    {"myanmar", R"(\x{116d0}-\x{116e3})"},
};
// Lower case, without spaces, '-' and '_'.
constexpr NamedValue kCategories[] = {
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"privateuse", "Co"},
    {"unassigned", "Cn"},
};

std::string NormalizedName(std::string_view name) {
  std::string normalized;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    normalized += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return normalized;
}

}  // namespace

std::string CategorySet(std::string_view name) {
  return StrCat("\\p{", name, "}", NewerCodePoints(MaskOfCategory(name)));
}

// Letters, marks, decimal digits, letter numbers, connector punctuation and circled letters.
std::string WordSet(bool in_class) {
  return StrCat(CategorySet("L"), CategorySet("M"), CategorySet("Nd"),
                R"(\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149})",
                R"(\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})",
                in_class ? "" : R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})");
}

std::string RustWordSet() {
  return WordSet(/*in_class=*/true) + R"(\x{200c}\x{200d})";  // Join_Control
}

std::optional<std::string> AsciiSet(std::string_view name) {
  constexpr NamedValue kSets[] = {
      {"alnum", "0-9A-Za-z"},
      {"alpha", "A-Za-z"},
      {"ascii", R"(\x{0}-\x{7f})"},
      {"blank", R"(\x{9}\x{20})"},
      {"cntrl", R"(\x{0}-\x{1f}\x{7f})"},
      {"digit", "0-9"},
      {"graph", R"(\x{21}-\x{7e})"},
      {"lower", "a-z"},
      {"print", R"(\x{20}-\x{7e})"},
      {"punct", R"(\x{21}-\x{2f}\x{3a}-\x{40}\x{5b}-\x{60}\x{7b}-\x{7e})"},
      {"space", R"(\x{9}-\x{d}\x{20})"},
      {"upper", "A-Z"},
      {"word", "0-9A-Za-z_"},
      {"xdigit", kHexDigitSet}};
  for (const NamedValue& set : kSets) {
    if (name == set.name) return std::string(set.value);
  }
  return std::nullopt;
}

// Alphabetic and lower case follow PCRE2's older Unicode data, plus a few letters that it lacks.
std::optional<std::string> PosixSet(std::string_view name) {
  if (name == "alpha") return CategorySet("L") + R"(\p{Alphabetic}\x{363}-\x{36f})";
  if (name == "alnum") return *PosixSet("alpha") + CategorySet("Nd");
  if (name == "digit") return CategorySet("Nd");
  if (name == "upper") return CategorySet("Lu") + R"(\p{Uppercase})";
  if (name == "lower") return CategorySet("Ll") + R"(\p{Lowercase}\x{10fc})";
  if (name == "space") return std::string(kSpaceSet);
  if (name == "blank") return R"(\x{9}\p{Zs})";
  if (name == "cntrl") return R"(\p{Cc})";
  if (name == "xdigit") return std::string(kHexDigitSet);
  if (name == "punct") return CategorySet("P") + CategorySet("S");
  if (name == "word") return WordSet(/*in_class=*/true);
  if (name == "ascii") return R"(\x{0}-\x{7f})";
  return std::nullopt;
}

std::optional<std::string> PropertySet(std::string_view name) {
  const std::string normalized = NormalizedName(name);
  for (const NamedValue& category : kCategories) {
    if (normalized == category.name || normalized == NormalizedName(category.value))
      return CategorySet(category.value);
  }
  if (normalized == "punct") return CategorySet("P");
  if (normalized == "word") return WordSet(/*in_class=*/false);
  if (normalized == "any") return R"(\x{0}-\x{10ffff})";
  if (auto posix = PosixSet(normalized)) return posix;
  for (const char c : normalized) {
    if (!std::isalnum(static_cast<unsigned char>(c))) return std::nullopt;
  }
  std::string script = StrCat("\\p{sc:", normalized, "}");
  if (!CompilePcre(script).ok()) return std::nullopt;
  for (const NamedValue& added : kNewerScriptMembers) {
    if (normalized == added.name) script += added.value;
  }
  return script;
}

}  // namespace nereid::tokenizer
