// Oniguruma's dialect, in which tokenizer.json writes its patterns, into PCRE2's: rewrites what has
// another meaning, passes on what has the same and refuses the rest by name.
#include <array>
#include <cctype>

#include "pattern.h"

namespace nereid::tokenizer {
namespace {

constexpr std::string_view kSpaceSet =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWordSet = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9})";

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
        Replace(2, in_class ? std::string(kSpaceSet) : StrCat("[", kSpaceSet, "]"));
        return {};
      case 'w':
        Replace(2, in_class ? std::string(kWordSet) : StrCat("[", kWordSet, "]"));
        return {};
      case 'S':
      case 'W':
        if (in_class) return Refuse(StrCat("'\\", c, "' inside a class"));
        Replace(2, StrCat("[^", c == 'S' ? kSpaceSet : kWordSet, "]"));
        return {};
      case 'd':
        Replace(2, "\\p{Nd}");
        return {};
      case 'D':
        Replace(2, "\\P{Nd}");
        return {};
      case 'v':
        Replace(2, "\\x{b}");
        return {};
      case 'p':
      case 'P':
        return Property();
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

  // General categories mean the same in both; scripts do under sc:.
  Status Property() {
    const size_t close = in_.find('}', at_);
    if (!(in_.substr(at_ + 2, 1) == "{") || close == in_.npos)
      return Refuse("a property without {}");
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    const bool negated = name.substr(0, 1) == "^";
    if (negated) name.remove_prefix(1);
    const bool category = (name.size() == 1 || name.size() == 2) &&
                          std::string_view("CLMNPSZ").find(name[0]) != std::string_view::npos;
    constexpr std::array<std::string_view, 14> kScripts = {
        "Han",    "Hiragana", "Katakana", "Hangul",     "Latin",   "Greek", "Cyrillic",
        "Arabic", "Hebrew",   "Thai",     "Devanagari", "Bengali", "Tamil", "Lao"};
    bool script = false;
    for (const std::string_view known : kScripts) script |= name == known;
    if (!category && !script) return Refuse(StrCat("the property '", name, "'"));
    out_ += StrCat("\\", in_[at_ + 1], "{", negated ? "^" : "", script ? "sc:" : "", name, "}");
    at_ = close + 1;
    return {};
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
