// Translates patterns of the two regex dialects to PCRE2: rewrites constructs whose meaning
// differs, copies those with the same meaning and refuses all others by name.
#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <utility>
#include <vector>

#include "backends/tokenizer/lib/pattern/char_sets.h"
#include "backends/tokenizer/lib/pattern/pattern.h"

namespace nereid::tokenizer {
namespace {

constexpr size_t kMaxSets = 24;  // computing a set takes milliseconds
constexpr int kMaxClassDepth = 16;
// Size limits of a pattern and of its translation: "\b" alone becomes kilobytes.
constexpr size_t kMaxPatternBytes = 16 << 10;
constexpr size_t kMaxTranslationBytes = 1 << 20;

class PcreTranslator {
 public:
  PcreTranslator(std::string_view in, RegexDialect dialect)
      : in_(in), is_rust_(dialect == RegexDialect::kRust) {}

  Result<std::string> Run() {
    if (in_.size() > kMaxPatternBytes) {
      return UnsupportedError("a pattern of ", in_.size(), " bytes is not supported: at most ",
                              kMaxPatternBytes);
    }
    while (at_ < in_.size()) {
      NEREID_RETURN_IF_ERROR(Item());
      NEREID_RETURN_IF_ERROR(CheckSize(out_.size()));
    }
    return std::move(out_);
  }

 private:
  struct Group {
    size_t start;  // offset in out_
    bool ignores_case, is_by_line;
  };

  Status Refuse(std::string_view what) const {
    return UnsupportedError("pattern '", in_, "': ", what, " at byte ", at_, " is not supported");
  }
  Status CheckSize(size_t size) const {
    if (size > kMaxTranslationBytes) return Refuse("a pattern that grows so large");
    return {};
  }
  Status UnterminatedClass() const {
    return InvalidArgError("pattern '", in_, "': a class has no end");
  }

  bool Next(std::string_view text) const { return in_.substr(at_, text.size()) == text; }
  char Peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  void Copy(size_t n) {
    out_.append(in_.substr(at_, n));
    at_ += n;
  }

  void Replace(size_t n, std::string_view text) {
    out_.append(text);
    at_ += n;
  }

  Status Item() {
    const char c = in_[at_];
    if (c == '*' || c == '+' || c == '?') {
      Copy(1);
      return EndQuantifier();
    }
    if (c == '|') {
      Copy(1);
      return {};
    }
    if (c == '{') return Interval();
    if (c == '(') return OpenGroup();
    if (c == ')') return CloseGroup();
    atom_ = out_.size();
    if (c == '\\') return Escape(/*in_class=*/false);
    if (c == '[') return Class();
    if (is_rust_ && is_by_line_ && c == '^') {
      Replace(1, R"((?:\A|(?<=\n)))");  // PCRE2's ^ does not match after a final newline
    } else if (is_rust_ && !is_by_line_ && (c == '^' || c == '$')) {
      Replace(1, c == '^' ? "\\A" : "\\z");
    } else {
      Copy(1);
    }
    return {};
  }

  std::string_view Digits(size_t& at) const {
    const size_t begin = at;
    while (at < in_.size() && std::isdigit(static_cast<unsigned char>(in_[at])) != 0) ++at;
    return in_.substr(begin, at - begin);
  }

  struct Bounds {
    std::string_view low, high;
    bool has_comma = false;
    size_t size = 0;  // in bytes; 0: not an interval
  };

  // Parses {n}, {n,}, {n,m}, {,m} and, in Rust, {,}. Anything else is literal text.
  Bounds BoundsHere() const {
    if (Peek() != '{') return {};
    size_t end = at_ + 1;
    Bounds bounds;
    bounds.low = Digits(end);
    bounds.has_comma = end < in_.size() && in_[end] == ',';
    if (bounds.has_comma) ++end;
    if (bounds.has_comma) bounds.high = Digits(end);
    const bool has_bound = !bounds.low.empty() || !bounds.high.empty();
    const bool is_whole = has_bound || (is_rust_ && bounds.has_comma);
    if (is_whole && end < in_.size() && in_[end] == '}') bounds.size = end + 1 - at_;
    return bounds;
  }

  // In Oniguruma, '+' or '*' after an interval repeats the group, and '?' after {n} makes it
  // optional: they do not make the interval possessive or lazy.
  Status Interval() {
    const auto [low, high, has_comma, size] = BoundsHere();
    if (size == 0) {
      atom_ = out_.size();
      Replace(1, "\\{");
      return {};
    }
    Replace(size, StrCat("{", low.empty() ? "0" : low, has_comma ? "," : "", high, "}"));
    if (is_rust_) return EndQuantifier();
    const char next = Peek();
    if (next == '+' || next == '*' || next == '{' || (next == '?' && !has_comma)) {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
    return {};
  }

  // Copies the suffix that makes a quantifier lazy or possessive. In Rust a following interval is
  // literal text and any other quantifier is an error; PCRE2 may repeat the group instead.
  Status EndQuantifier() {
    if (!is_rust_) return {};
    if (Peek() == '?' || Peek() == '+') Copy(1);
    const size_t interval = BoundsHere().size;
    if (interval == 0 && Peek() != '*' && Peek() != '+' && Peek() != '?') return {};
    return Refuse(StrCat("the second quantifier '", in_.substr(at_, std::max(interval, size_t{1})),
                         "' after another"));
  }

  Status OpenGroup() {
    constexpr std::array<std::string_view, 6> kGroupPrefixes = {"(?:",  "(?=",  "(?!",
                                                                "(?<=", "(?<!", "(?>"};
    if (Next("(*")) return Refuse("this kind of group");
    if (Next("(?#")) {
      const size_t end = in_.find(')', at_);
      if (end == in_.npos) return InvalidArgError("pattern '", in_, "': a comment has no end");
      at_ = end + 1;
      return {};
    }
    if (!Next("(?")) return Enter(1, "(", ignores_case_);
    for (const std::string_view head : kGroupPrefixes) {
      if (Next(head)) return Enter(head.size(), head, ignores_case_);
    }
    if (Next("(?<")) return NamedGroup(at_ + 3);
    if (is_rust_ && Next("(?P<")) return NamedGroup(at_ + 4);
    return Options();
  }

  Status Enter(size_t length, std::string_view head, bool ignores_case) {
    groups_.push_back({out_.size(), ignores_case_, is_by_line_});
    ignores_case_ = ignores_case;
    Replace(length, head);
    content_ = at_;
    return {};
  }

  Status CloseGroup() {
    if (groups_.empty()) return InvalidArgError("pattern '", in_, "': an unmatched ')'");
    atom_ = groups_.back().start;
    ignores_case_ = groups_.back().ignores_case;
    is_by_line_ = groups_.back().is_by_line;
    groups_.pop_back();
    Copy(1);
    return {};
  }

  // Patterns cannot refer to groups, so that the name is dropped.
  Status NamedGroup(size_t begin) {
    size_t end = begin;
    while (end < in_.size() &&
           (std::isalnum(static_cast<unsigned char>(in_[end])) != 0 || in_[end] == '_')) {
      ++end;
    }
    if (end == begin || end == in_.size() || in_[end] != '>') return Refuse("this kind of group");
    return Enter(end + 1 - at_, "(?:", ignores_case_);
  }

  // Parses (?i-m:...) and (?i). Oniguruma patterns may have (?i) at the start of a group or of the
  // pattern. Rust patterns may have it only outside groups, because fancy-regex, which tiktoken
  // uses, keeps the option after the end of a plain group. Oniguruma's m is PCRE2's s. Rust has
  // both s and m; m is translated at '^' and '$'.
  Status Options() {
    std::string flags = "(?";
    bool on = true, ignores_case = ignores_case_, is_by_line = is_by_line_;
    size_t end = at_ + 2;
    for (; end < in_.size() && in_[end] != ':' && in_[end] != ')'; ++end) {
      const char flag = in_[end];
      if (flag == 'i') ignores_case = on;
      const bool is_known = flag == 'i' || flag == 'm' || (is_rust_ && flag == 's');
      if (!is_known && (flag != '-' || !on)) return Refuse("this kind of group");
      on = on && flag != '-';
      if (is_rust_ && flag == 'm') {
        is_by_line = on;
      } else {
        flags += flag == 'm' ? 's' : flag;
      }
    }
    if (end == in_.size()) return Refuse("this kind of group");
    flags += in_[end];
    if (in_[end] == ':') {
      NEREID_RETURN_IF_ERROR(Enter(end + 1 - at_, flags, ignores_case));
      is_by_line_ = is_by_line;
      return {};
    }
    if (is_rust_ ? !groups_.empty() : at_ != content_) return Refuse("an option inside a group");
    ignores_case_ = ignores_case;
    is_by_line_ = is_by_line;
    Replace(end + 1 - at_, flags);
    content_ = at_;
    return {};
  }

  Status Class() {
    const size_t begin = at_, size = out_.size();
    needs_sets_ = false;
    NEREID_RETURN_IF_ERROR(PlainClass());
    if (!needs_sets_) return {};
    at_ = begin;
    out_.resize(size);
    NEREID_ASSIGN_OR_RETURN(const CodePointSet set, ClassOfSets(0));
    out_ += set.ToClass();
    return {};
  }

  // "&&" is an intersection. Rust also has "--" (difference) and "~~" (symmetric difference).
  bool AtSetOperation() const { return Next("&&") || (is_rust_ && (Next("--") || Next("~~"))); }

  bool AtPosix() const { return Next("[:") && in_.find(":]", at_) != in_.npos; }

  Status ClassMember() {
    if (in_[at_] == '\\') return Escape(/*in_class=*/true);
    if (in_[at_] == '[') return Posix();
    Copy(1);
    return {};
  }

  // In Rust, hyphens at the start of a class are members, not the operator "--".
  size_t LeadingHyphens() const {
    if (!is_rust_) return 0;
    return std::min(in_.find_first_not_of('-', at_), in_.size()) - at_;
  }

  // Returns early with needs_sets_ set if PCRE2 has no syntax for the class.
  Status PlainClass() {
    Copy(1);
    if (Next("^")) Copy(1);
    if (Next("]")) return Refuse("']' as a class's first character");
    if (const size_t hyphens = LeadingHyphens(); hyphens > 0) Replace(hyphens, "\\-");
    while (at_ < in_.size() && in_[at_] != ']') {
      needs_sets_ = needs_sets_ || AtSetOperation() || (Next("[") && !AtPosix());
      if (needs_sets_) return {};
      NEREID_RETURN_IF_ERROR(ClassMember());
      NEREID_RETURN_IF_ERROR(CheckSize(out_.size()));
    }
    if (at_ == in_.size()) return UnterminatedClass();
    Copy(1);
    return {};
  }

  Result<CodePointSet> SetOf(std::string items) {
    if (items.starts_with('^')) items = StrCat("\\", items);
    std::pair key(std::move(items), ignores_case_);
    const auto known = sets_.find(key);
    if (known != sets_.end()) return known->second;
    if (sets_.size() == kMaxSets) return Refuse(StrCat("more than ", kMaxSets, " sets in classes"));
    NEREID_ASSIGN_OR_RETURN(CodePointSet set, CodePointSet::OfClass(key.first, ignores_case_));
    sets_.emplace(std::move(key), set);
    return set;
  }

  // Joins the parts of a class before an operator with the part behind it. The first part has none.
  static void ApplySetOperation(char operation, CodePointSet part, CodePointSet& whole) {
    if (operation == '&') {
      whole.Intersect(part);
    } else if (operation == '-') {
      part.Complement();
      whole.Intersect(part);
    } else if (operation == '~') {
      CodePointSet both = whole;
      both.Intersect(part);
      both.Complement();
      whole.Add(part);
      whole.Intersect(both);
    } else {
      whole = std::move(part);
    }
  }

  // Evaluates a class that contains classes, complements, or operators such as "&&", which bind
  // weaker than union.
  Result<CodePointSet> ClassOfSets(int depth) {
    if (depth == kMaxClassDepth) return Refuse("so deep a class");
    ++at_;
    const bool is_negated = Next("^");
    if (is_negated) ++at_;
    if (Next("]")) return Refuse("']' as a class's first character");
    CodePointSet whole, part;
    char operation = '\0';  // operator between the current part and the preceding ones
    std::string items;      // plain members of the current part
    if (const size_t hyphens = LeadingHyphens(); hyphens > 0) {
      items = "\\-";
      at_ += hyphens;
    }
    const auto end_part = [&]() -> Status {
      NEREID_ASSIGN_OR_RETURN(const CodePointSet plain, SetOf(std::exchange(items, {})));
      part.Add(plain);
      ApplySetOperation(operation, std::exchange(part, {}), whole);
      return {};
    };
    while (at_ < in_.size() && in_[at_] != ']') {
      if (AtSetOperation()) {
        NEREID_RETURN_IF_ERROR(end_part());
        operation = in_[at_];
        at_ += 2;
      } else if (Next("[") && !AtPosix()) {
        NEREID_ASSIGN_OR_RETURN(const CodePointSet inner, ClassOfSets(depth + 1));
        part.Add(inner);
      } else {
        const size_t size = out_.size();
        complement_.clear();
        NEREID_RETURN_IF_ERROR(ClassMember());
        items.append(out_, size);
        out_.resize(size);
        NEREID_RETURN_IF_ERROR(CheckSize(items.size()));
        if (complement_.empty()) continue;
        NEREID_ASSIGN_OR_RETURN(CodePointSet outside, SetOf(complement_));
        outside.Complement();
        part.Add(outside);
      }
    }
    if (at_ == in_.size()) return UnterminatedClass();
    ++at_;
    NEREID_RETURN_IF_ERROR(end_part());
    if (is_negated) whole.Complement();
    return whole;
  }

  // Parses [:alpha:] and [:^alpha:].
  Status Posix() {
    const size_t end = in_.find(":]", at_);
    const bool is_negated = Peek(2) == '^';
    const size_t begin = at_ + (is_negated ? 3 : 2);
    if (end < begin) return Refuse("this kind of class");
    const std::string_view name = in_.substr(begin, end - begin);
    const auto set = is_rust_ ? AsciiSet(name) : PosixSet(name);
    if (!set) return Refuse("this kind of class");
    return Set(end + 2 - at_, *set, is_negated, /*in_class=*/true);
  }

  Status Escape(bool in_class) {
    if (at_ + 1 == in_.size()) return InvalidArgError("pattern '", in_, "': ends with a backslash");
    const char c = in_[at_ + 1];
    if (is_rust_ && !in_class && (c == '<' || c == '>')) return Refuse(StrCat("'\\", c, "'"));
    if (!std::isalnum(static_cast<unsigned char>(c))) {
      Copy(2);
      return {};
    }
    switch (c) {
      case 's':
      case 'S':
        return Set(2, kSpaceSet, c == 'S', in_class);
      case 'w':
      case 'W':
        return Set(2, Word(in_class), c == 'W', in_class);
      case 'd':
      case 'D':
        return Set(2, CategorySet("Nd"), c == 'D', in_class);
      case 'h':
      case 'H':
        return Set(2, kHexDigitSet, c == 'H', in_class);
      case 'p':
      case 'P':
        return Property(in_class);
      case 'v':
        Replace(2, "\\x{b}");
        return {};
      case 'u':
        return FourDigitCode();
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        Copy(2);
        return {};
      case 'x':
        return HexCode();
      default:
        return in_class ? ClassEscape(c) : AssertionEscape(c);
    }
  }

  std::string Word(bool in_class) const { return is_rust_ ? RustWordSet() : WordSet(in_class); }

  Status ClassEscape(char c) {
    if (c != 'b') return Refuse(StrCat("'\\", c, "'"));
    Replace(2, "\\x{8}");
    return {};
  }

  // Escapes that are not allowed in a class.
  Status AssertionEscape(char c) {
    if (is_rust_ && (c == 'b' || c == 'B') && Peek(2) == '{') return Refuse(StrCat("'\\", c, "{'"));
    if (is_rust_ && c == 'Z') {
      Replace(2, R"((?=\n*\z))");
      return {};
    }
    const std::string word = StrCat("[", Word(/*in_class=*/false), "]");
    switch (c) {
      case 'A':
      case 'z':
      case 'Z':
      case 'N':
        Copy(2);
        return {};
      case 'O':
        Replace(2, "(?s:.)");
        return {};
      case 'R':
        Replace(2, R"((?>\r\n|[\n-\r\x{85}\x{2028}\x{2029}]))");
        return {};
      case 'b':
        Replace(2, StrCat("(?:(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, "))"));
        return {};
      case 'B':
        Replace(2, StrCat("(?:(?<=", word, ")(?=", word, ")|(?<!", word, ")(?!", word, "))"));
        return {};
      default:
        return Refuse(StrCat("'\\", c, "'"));
    }
  }

  // Replaces the next `length` bytes by a set.
  Status Set(size_t length, std::string_view set, bool is_negated, bool in_class) {
    if (!in_class) {
      Replace(length, StrCat(is_negated ? "[^" : "[", set, "]"));
    } else if (is_negated) {
      complement_ = set;
      needs_sets_ = true;
      at_ += length;
    } else {
      Replace(length, set);
    }
    return {};
  }

  Status Property(bool in_class) {
    if (is_rust_ && std::isalpha(static_cast<unsigned char>(Peek(2))) != 0) {  // \pL
      const auto category = PropertySet(in_.substr(at_ + 2, 1));
      if (!category) return Refuse(StrCat("the property '", Peek(2), "'"));
      return Set(3, *category, in_[at_ + 1] == 'P', in_class);
    }
    const size_t close = in_.find('}', at_);
    if (Peek(2) != '{' || close == in_.npos) return Refuse("a property without {}");
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    bool is_negated = in_[at_ + 1] == 'P';
    if (name.starts_with('^')) {
      is_negated = !is_negated;
      name.remove_prefix(1);
    }
    const auto set = PropertySet(name);
    if (!set) return Refuse(StrCat("the property '", name, "'"));
    return Set(close + 1 - at_, *set, is_negated, in_class);
  }

  Status HexCode() {
    const size_t close = in_.find('}', at_);
    if (Peek(2) == '{' && close == in_.npos) return Refuse("'\\x{' without '}'");
    Copy(Peek(2) == '{' ? close + 1 - at_ : 2);
    return {};
  }

  Status FourDigitCode() {
    if (is_rust_ && Peek(2) == '{') {
      const size_t close = in_.find('}', at_);
      if (close == in_.npos) return Refuse("'\\u{' without '}'");
      Replace(close + 1 - at_, StrCat("\\x", in_.substr(at_ + 2, close - at_ - 1)));
      return {};
    }
    const std::string_view digits = in_.substr(at_ + 2, 4);
    bool hex = digits.size() == 4;
    for (const char c : digits) hex &= std::isxdigit(static_cast<unsigned char>(c)) != 0;
    if (!hex) return Refuse("'\\u' without four digits");
    Replace(6, StrCat("\\x{", digits, "}"));
    return {};
  }

  std::string_view in_;
  const bool is_rust_;
  size_t at_ = 0;
  size_t content_ = 0;  // where in in_ the content of the current group begins
  std::string out_;
  size_t atom_ = 0;  // where in out_ the operand of a following quantifier begins
  std::vector<Group> groups_;
  bool ignores_case_ = false;
  bool is_by_line_ = false;  // '^' and '$' match at lines; only tracked for Rust
  bool needs_sets_ = false;
  std::string complement_;  // the complemented set, if the last class member was a complement
  std::map<std::pair<std::string, bool>, CodePointSet> sets_;  // by members and case-insensitivity
};

}  // namespace

Result<std::string> TranslateToPcre(std::string_view regex, RegexDialect dialect) {
  return PcreTranslator(regex, dialect).Run();
}

}  // namespace nereid::tokenizer
