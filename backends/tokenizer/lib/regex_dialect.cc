// Oniguruma's dialect, in which tokenizer.json writes its patterns, into PCRE2's: rewrites what has
// another meaning, passes on what has the same and refuses the rest by name.
#include <array>
#include <cctype>
#include <sstream>

#include "pattern.h"
#include "unicode.h"

namespace nereid::tokenizer {
namespace {

constexpr std::string_view kSpaceSet =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

struct CodeRange {
  char32_t first, last;
};
constexpr CodeRange kSince14[] = {
#define UNICODE_SINCE_14
#include "unicode_tables.inc"
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

std::string CategorySet(std::string_view name) {
  return StrCat("\\p{", name, "}", YoungerSet(MaskOfCategory(name)));
}

// \w: letters, marks, decimal digits, letter numbers, connectors, circled letters. Outside a class
// Oniguruma adds the superscripts and fractions of Latin-1.
std::string WordSet(bool in_class) {
  return StrCat(CategorySet("L"), CategorySet("M"), CategorySet("Nd"),
                R"(\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149})",
                R"(\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})",
                in_class ? "" : R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})");
}

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> Run() {
    while (at_ < in_.size()) {
      NEREID_RETURN_IF_ERROR(in_[at_] == '\\'  ? Escape(/*in_class=*/false)
                              : in_[at_] == '[' ? Class()
                             : in_[at_] == '(' ? Group()
                             : in_[at_] == '}' ? Brace()
                                               : Plain());
    }
    return std::move(out_);
  }

 private:
  Status Refuse(std::string_view what) const {
    return UnsupportedError("pattern '", in_, "': ", what, " at byte ", at_, " is not supported");
  }

  bool Next(std::string_view text) const { return in_.substr(at_, text.size()) == text; }

  void Copy(size_t n) {
    out_.append(in_.substr(at_, n));
    at_ += n;
  }

  void Replace(size_t n, std::string_view text) {
    out_.append(text);
    at_ += n;
  }

  Status Plain() {
    if (Next("{,")) return Refuse("'{,n}'");
    Copy(1);
    return {};
  }

  Status Brace() {
    if (Next("}+") || Next("}?")) return Refuse("a suffix behind '{n,m}'");
    Copy(1);
    return {};
  }

  Status Group() {
    constexpr std::array<std::string_view, 8> kHeads = {"(?:",  "(?i:", "(?=", "(?!",
                                                        "(?<=", "(?<!", "(?>", "(?i)"};
    if (!Next("(?") && !Next("(*")) {
      Copy(1);
      return {};
    }
    for (const std::string_view head : kHeads) {
      if (Next(head)) {
        Copy(head.size());
        return {};
      }
    }
    return Refuse("this kind of group");
  }

  Status Class() {
    Copy(1);
    if (Next("^")) Copy(1);
    if (Next("]")) return Refuse("']' as a class's first character");
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '[') return Refuse("a class inside a class");
      if (Next("&&")) return Refuse("'&&' inside a class");
      if (in_[at_] == '\\') {
        NEREID_RETURN_IF_ERROR(Escape(/*in_class=*/true));
      } else {
        Copy(1);
      }
    }
    if (at_ == in_.size()) return InvalidArgError("pattern '", in_, "': a class has no end");
    Copy(1);
    return {};
  }

  Status Escape(bool in_class) {
    if (at_ + 1 == in_.size()) return InvalidArgError("pattern '", in_, "': ends with a backslash");
    const char c = in_[at_ + 1];
    if (!std::isalnum(static_cast<unsigned char>(c))) {
      Copy(2);
      return {};
    }
    switch (c) {
      case 's':
        return Set(kSpaceSet, false, in_class);
      case 'S':
        return Set(kSpaceSet, true, in_class);
      case 'w':
        return Set(WordSet(in_class), false, in_class);
      case 'W':
        return Set(WordSet(in_class), true, in_class);
      case 'd':
        return Set(CategorySet("Nd"), false, in_class);
      case 'D':
        return Set(CategorySet("Nd"), true, in_class);
      case 'v':
        Replace(2, "\\x{b}");
        return {};
      case 'p':
      case 'P':
        return Property(in_class);
      case 'u':
        return FourDigitCode();
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'a':
      case 'e':
      case 'x':  // NOLINT
        Copy(2);
        return {};
      case 'A':
      case 'z':
        if (!in_class) {
          Copy(2);
          return {};
        }
        [[fallthrough]];
      default:
        return Refuse(StrCat("'\\", c, "'"));
    }
  }

  // An escape of two characters that stands for a set.
  Status Set(std::string_view set, bool negated, bool in_class) {
    if (!in_class) {
      Replace(2, StrCat(negated ? "[^" : "[", set, "]"));
      return {};
    }
    if (negated) return Refuse(StrCat("'\\", in_[at_ + 1], "' inside a class"));
    Replace(2, set);
    return {};
  }

  // General categories mean the same in both but for their age; scripts do under sc:.
  Status Property(bool in_class) {
    const size_t close = in_.find('}', at_);
    if (in_.substr(at_ + 2, 1) != "{" || close == in_.npos) {
      return Refuse("a property without {}");
    }
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    bool negated = in_[at_ + 1] == 'P';
    if (name.substr(0, 1) == "^") {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (!IsCategory(name) && !IsScript(name)) return Refuse(StrCat("the property '", name, "'"));
    if (IsCategory(name) && MaskOfCategory(name) != 0) {
      at_ = close - 1;
      return Set(CategorySet(name), negated, in_class);
    }
    out_ += StrCat(negated ? "\\P{" : "\\p{", IsScript(name) ? "sc:" : "", name, "}");
    at_ = close + 1;
    return {};
  }

  static bool IsCategory(std::string_view name) {
    return (name.size() == 1 || name.size() == 2) &&
           std::string_view("CLMNPSZ").find(name[0]) != std::string_view::npos;
  }

  static bool IsScript(std::string_view name) {
    constexpr std::array<std::string_view, 14> kScripts = {
        "Han",    "Hiragana", "Katakana", "Hangul",     "Latin",   "Greek", "Cyrillic",
        "Arabic", "Hebrew",   "Thai",     "Devanagari", "Bengali", "Tamil", "Lao"};
    for (const std::string_view known : kScripts) {
      if (name == known) return true;
    }
    return false;
  }

  Status FourDigitCode() {
    const std::string_view digits = in_.substr(at_ + 2, 4);
    bool hex = digits.size() == 4;
    for (const char c : digits) hex &= std::isxdigit(static_cast<unsigned char>(c)) != 0;
    if (!hex) return Refuse("'\\u' without four digits");
    Replace(6, StrCat("\\x{", digits, "}"));
    return {};
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> TranslateToPcre(std::string_view regex) {
  return Translator(regex).Run();
}

}  // namespace nereid::tokenizer
