// See regex_sets.h.
#include "backends/tokenizer/lib/pattern/regex_sets.h"

#include <cctype>
#include <sstream>

#include "backends/tokenizer/lib/pattern/pattern.h"
#include "backends/tokenizer/lib/text/unicode.h"
#include "nereid/status.h"

namespace nereid::tokenizer {
namespace {

struct CodeRange {
  char32_t first, last;
};
constexpr CodeRange kSince14[] = {
#define UNICODE_SINCE_14
#include "backends/tokenizer/lib/text/unicode_tables.inc"
#undef UNICODE_SINCE_14
};

// The classes of a general category that the class table knows, or 0.
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

// Members of a class for the code points of `classes` that PCRE2's Unicode data lacks.
std::string YoungerSet(ClassMask classes) {
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

struct Name {
  std::string_view is, means;
};
// What scripts have won since PCRE2's Unicode data, of those that patterns ask for.
constexpr Name kYoungerScripts[] = {
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
// Without case, spaces, '-' and '_'.
constexpr Name kCategories[] = {
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

std::string Loose(std::string_view name) {
  std::string loose;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    loose += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return loose;
}

}  // namespace

std::string CategorySet(std::string_view name) {
  return StrCat("\\p{", name, "}", YoungerSet(MaskOfCategory(name)));
}

// Letters, marks, decimal digits, letter numbers, connectors, circled letters.
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
  constexpr Name kSets[] = {{"alnum", "0-9A-Za-z"},
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
  for (const Name& set : kSets) {
    if (name == set.is) return std::string(set.means);
  }
  return std::nullopt;
}

// Alphabetic and lower case as PCRE2's Unicode data has them, which is a few letters behind.
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
  const std::string loose = Loose(name);
  for (const Name& category : kCategories) {
    if (loose == category.is || loose == Loose(category.means)) return CategorySet(category.means);
  }
  if (loose == "punct") return CategorySet("P");
  if (loose == "word") return WordSet(/*in_class=*/false);
  if (loose == "any") return R"(\x{0}-\x{10ffff})";
  if (auto posix = PosixSet(loose)) return posix;
  for (const char c : loose) {
    if (!std::isalnum(static_cast<unsigned char>(c))) return std::nullopt;
  }
  std::string script = StrCat("\\p{sc:", loose, "}");
  if (!CompilePcre(script).ok()) return std::nullopt;
  for (const Name& younger : kYoungerScripts) {
    if (loose == younger.is) script += younger.means;
  }
  return script;
}

}  // namespace nereid::tokenizer
