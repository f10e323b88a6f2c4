// A parser by recursive descent: one function for each rule of the syntax.
#include "backends/llm_core/grammar/regex_parser.h"

#include <algorithm>
#include <utility>

#include "backends/llm_core/grammar/regex_pool.h"

namespace nereid::llm::grammar {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr int kMaxRegexNesting = 200;
constexpr int kMaxRegexCount = 1'000'000'000;

using Part = RegexPart;
using PartPtr = std::unique_ptr<RegexPart>;

CodePointSet Digits() {
  return CodePointSet::Of('0', '9');
}
CodePointSet WordChars() {
  return CodePointSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
}
CodePointSet Spaces() {
  return CodePointSet({{9, 13},
                       {32, 32},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000},
                       {0xFEFF, 0xFEFF}});
}
CodePointSet LineEnds() {
  return CodePointSet({{10, 10}, {13, 13}, {0x2028, 0x2029}});
}

class Parser {
 public:
  explicit Parser(std::string_view text, size_t pos = 0) : text_(text), pos_(pos) {}

  Result<PartPtr> Parse() {
    if (text_.size() > kMaxPatternBytes) {
      return InvalidArgError("the pattern has ", text_.size(), " bytes; at most ", kMaxPatternBytes,
                             " are allowed");
    }
    if (!IsUtf8(text_)) return InvalidArgError("the pattern is not valid UTF-8");
    NEREID_ASSIGN_OR_RETURN(PartPtr part, ParseUnion(0));
    if (pos_ < text_.size()) return Fault("unmatched ')'");
    return part;
  }

  Result<CodePointSet> ParseClass() {
    ++pos_;  // [
    const bool negated = Take('^');
    std::vector<CodePointSet::Range> ranges;
    while (true) {
      if (pos_ >= text_.size()) return Fault("a class is not closed");
      if (Take(']')) break;
      NEREID_ASSIGN_OR_RETURN(const CodePointSet first, ClassAtom());
      const bool is_single = IsSingle(first);
      if (pos_ + 1 < text_.size() && text_[pos_] == '-' && text_[pos_ + 1] != ']') {
        ++pos_;
        NEREID_ASSIGN_OR_RETURN(const CodePointSet last, ClassAtom());
        if (!is_single || !IsSingle(last)) return Fault("a range of classes");
        const uint32_t from = first.ranges()[0].first, to = last.ranges()[0].first;
        if (from > to) return Fault("a range whose end is before its beginning");
        ranges.push_back({from, to});
      } else {
        ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
      }
    }
    CodePointSet set(std::move(ranges));
    if (ignores_case_) set = set.IgnoringCase();
    return negated ? set.Complement() : set;
  }

  size_t pos() const { return pos_; }

 private:
  Status Fault(std::string_view what) const {
    return InvalidArgError(what, " at byte ", pos_, " of the pattern");
  }
  Status Refusal(std::string_view what) const {
    return UnsupportedError(what, " at byte ", pos_, " of the pattern cannot be enforced");
  }
  bool Take(char c) {
    if (pos_ >= text_.size() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }
  bool TakeText(std::string_view what) {
    if (!text_.substr(pos_).starts_with(what)) return false;
    pos_ += what.size();
    return true;
  }
  static bool IsSingle(const CodePointSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }
  static PartPtr Make(Part::Kind kind) {
    auto part = std::make_unique<Part>();
    part->kind = kind;
    part->has_begin = kind == Part::Kind::kBegin;
    part->is_plain = kind < Part::Kind::kBegin;
    return part;
  }
  static void Append(Part& part, PartPtr child) {
    part.has_begin |= child->has_begin;
    part.is_plain &= child->is_plain;
    part.parts.push_back(std::move(child));
  }
  PartPtr MakeSet(CodePointSet set) const {
    PartPtr part = Make(Part::Kind::kSet);
    part->set = ignores_case_ ? set.IgnoringCase() : std::move(set);
    return part;
  }

  Result<PartPtr> ParseUnion(int depth) {
    if (depth > kMaxRegexNesting) return Fault("groups are nested too deeply");
    PartPtr all = Make(Part::Kind::kUnion);
    do {
      PartPtr concat = Make(Part::Kind::kConcat);
      while (pos_ < text_.size() && text_[pos_] != '|' && text_[pos_] != ')') {
        NEREID_ASSIGN_OR_RETURN(PartPtr part, ParseRepeat(depth));
        Append(*concat, std::move(part));
      }
      Append(*all, std::move(concat));
    } while (Take('|'));
    if (all->parts.size() == 1) return std::move(all->parts[0]);
    return all;
  }

  Result<PartPtr> ParseRepeat(int depth) {
    NEREID_ASSIGN_OR_RETURN(PartPtr part, ParseAtom(depth));
    int num_quantifiers = 0;
    while (pos_ < text_.size()) {
      int min = 0, max = RegexPool::kUnlimited;
      const size_t begin = pos_;
      if (Take('+')) {
        min = 1;
      } else if (Take('?')) {
        max = 1;
      } else if (text_[pos_] == '{') {
        if (!ParseCounts(min, max)) {
          pos_ = begin;
          return Fault("'{' without counts");
        }
        if (max != RegexPool::kUnlimited && max < min) return Fault("counts in the wrong order");
      } else if (!Take('*')) {
        break;
      }
      if (++num_quantifiers > 1) return Fault("a quantifier follows a quantifier");
      Take('?');  // whether it is lazy does not change which texts match
      if (pos_ < text_.size() && text_[pos_] == '+') return Refusal("a possessive quantifier");
      if (!part->is_plain && max != 1 && max != 0) {
        return Refusal("a repeated anchor or look-ahead");
      }
      PartPtr repeat = Make(Part::Kind::kRepeat);
      repeat->min = min;
      repeat->max = max;
      Append(*repeat, std::move(part));
      part = std::move(repeat);
    }
    return part;
  }

  bool ParseNumber(int& number) {
    const size_t begin = pos_;
    int64_t value = 0;
    while (pos_ < text_.size() && text_[pos_] >= '0' && text_[pos_] <= '9') {
      value = std::min<int64_t>(value * 10 + (text_[pos_++] - '0'), kMaxRegexCount);
    }
    number = static_cast<int>(value);
    return pos_ > begin;
  }
  bool ParseCounts(int& min, int& max) {
    ++pos_;
    if (!ParseNumber(min)) {
      if (pos_ >= text_.size() || text_[pos_] != ',') return false;
      min = 0;  // {,n} as in Python
    }
    max = min;
    if (Take(',') && !ParseNumber(max)) max = RegexPool::kUnlimited;
    return Take('}');
  }

  Result<PartPtr> ParseAtom(int depth) {
    switch (text_[pos_]) {
      case '^':
        ++pos_;
        return Make(Part::Kind::kBegin);
      case '$':
        ++pos_;
        return Make(Part::Kind::kEnd);
      case '.':
        ++pos_;
        return MakeSet(LineEnds().Complement());
      case '[': {
        NEREID_ASSIGN_OR_RETURN(CodePointSet set, ParseClass());
        PartPtr part = Make(Part::Kind::kSet);
        part->set = std::move(set);
        return part;
      }
      case '(':
        return ParseGroup(depth);
      case '*':
      case '+':
      case '?':
        return Fault("nothing to repeat");
      case '\\': {
        if (pos_ + 1 < text_.size()) {
          const char c = text_[pos_ + 1];
          if (c == 'b' || c == 'B') return Refusal("a word boundary");
          if (c >= '1' && c <= '9') return Refusal("a back-reference");
          if (c == 'k') return Refusal("a back-reference");
          if (c == 'A') {
            pos_ += 2;
            return Make(Part::Kind::kBegin);
          }
          if (c == 'Z' || c == 'z') {
            pos_ += 2;
            return Make(Part::Kind::kEnd);
          }
        }
        NEREID_ASSIGN_OR_RETURN(CodePointSet set, ParseEscape());
        return MakeSet(std::move(set));
      }
      default: {
        const uint32_t code_point = ReadUtf8(text_, pos_);
        return MakeSet(CodePointSet::Of(code_point, code_point));
      }
    }
  }

  Result<PartPtr> ParseGroup(int depth) {
    ++pos_;
    PartPtr ahead;
    if (TakeText("?=")) {
      ahead = Make(Part::Kind::kAhead);
    } else if (TakeText("?!")) {
      ahead = Make(Part::Kind::kNotAhead);
    } else if (text_.substr(pos_).starts_with("?<=") || text_.substr(pos_).starts_with("?<!")) {
      return Refusal("look-behind");
    } else if (TakeText("?<") || TakeText("?P<")) {
      const size_t end = text_.find('>', pos_);
      if (end == std::string_view::npos) return Fault("a group's name is not closed");
      pos_ = end + 1;
    } else if (TakeText("?i:")) {
      const bool before = ignores_case_;
      ignores_case_ = true;
      Result<PartPtr> inside = ParseUnion(depth + 1);
      ignores_case_ = before;
      if (inside.ok() && !Take(')')) return Fault("a group is not closed");
      return inside;
    } else if (TakeText("?i)") && depth == 0) {
      ignores_case_ = true;
      return Make(Part::Kind::kConcat);
    } else if (!TakeText("?:") && pos_ < text_.size() && text_[pos_] == '?') {
      return Refusal("a group of this kind");
    }
    NEREID_ASSIGN_OR_RETURN(PartPtr inside, ParseUnion(depth + 1));
    if (!Take(')')) return Fault("a group is not closed");
    if (ahead == nullptr) return inside;
    if (inside->has_begin) return Refusal("'^' inside of a look-ahead");
    ahead->parts.push_back(std::move(inside));
    return ahead;
  }

  Result<CodePointSet> ClassAtom() {
    if (pos_ >= text_.size()) return Fault("a class is not closed");
    if (text_[pos_] == '\\') return ParseEscape();
    const uint32_t code_point = ReadUtf8(text_, pos_);
    return CodePointSet::Of(code_point, code_point);
  }

  Result<uint32_t> Hex(int num_digits) {
    uint32_t value = 0;
    for (int i = 0; i < num_digits; ++i, ++pos_) {
      const char c = pos_ < text_.size() ? text_[pos_] : ' ';
      const char lower = static_cast<char>(c | 32);
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<uint32_t>(c - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        value = value * 16 + static_cast<uint32_t>(lower - 'a' + 10);
      } else {
        return Fault("a hexadecimal digit is missing");
      }
    }
    return value;
  }

  // The number of an escape, if it is that of a character.
  Result<uint32_t> Character(uint32_t number) const {
    if (IsSurrogate(number)) return Fault("half of a surrogate pair");
    if (number > kMaxCodePoint) return Fault("a number above 10FFFF, the last character,");
    return number;
  }

  // What follows "\u": four digits, digits in braces, or both halves of a surrogate pair.
  Result<uint32_t> ParseUnicodeEscape() {
    if (Take('{')) {
      const size_t end = text_.find('}', pos_);
      if (end == std::string_view::npos || end - pos_ > 6 || end == pos_) {
        return Fault("\\u{ without a number");
      }
      NEREID_ASSIGN_OR_RETURN(const uint32_t value, Hex(static_cast<int>(end - pos_)));
      ++pos_;
      return Character(value);
    }
    NEREID_ASSIGN_OR_RETURN(const uint32_t value, Hex(4));
    if (!IsHighSurrogate(value)) return Character(value);
    if (!TakeText("\\u")) return Fault("half of a surrogate pair");
    NEREID_ASSIGN_OR_RETURN(const uint32_t low, Hex(4));
    if (!IsLowSurrogate(low)) return Fault("half of a surrogate pair");
    return FromSurrogates(value, low);
  }

  Result<CodePointSet> ParseEscape() {
    ++pos_;  // the backslash
    if (pos_ >= text_.size()) return Fault("a backslash at the end");
    const char c = text_[pos_++];
    const auto one = [](uint32_t code_point) { return CodePointSet::Of(code_point, code_point); };
    switch (c) {
      case 'd':
        return Digits();
      case 'D':
        return Digits().Complement();
      case 'w':
        return WordChars();
      case 'W':
        return WordChars().Complement();
      case 's':
        return Spaces();
      case 'S':
        return Spaces().Complement();
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'b':
        return one('\b');  // only inside of a class
      case '0':
        return one(0);
      case 'x': {
        NEREID_ASSIGN_OR_RETURN(const uint32_t value, Hex(2));
        return one(value);
      }
      case 'U': {
        NEREID_ASSIGN_OR_RETURN(const uint32_t value, Hex(8));
        NEREID_ASSIGN_OR_RETURN(const uint32_t code_point, Character(value));
        return one(code_point);
      }
      case 'c':
        if (pos_ < text_.size()) return one(static_cast<uint8_t>(text_[pos_++]) & 31u);
        return Fault("a control letter is missing");
      case 'u': {
        NEREID_ASSIGN_OR_RETURN(const uint32_t value, ParseUnicodeEscape());
        return one(value);
      }
      case 'p':
      case 'P':
        --pos_;
        return Refusal("a Unicode property (\\p)");
      default:
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9')) {
          --pos_;
          return Fault("an unknown escape");
        }
        --pos_;
        return one(ReadUtf8(text_, pos_));
    }
  }

  const std::string_view text_;
  size_t pos_;
  bool ignores_case_ = false;
};

}  // namespace

Result<std::unique_ptr<RegexPart>> ParsePattern(std::string_view pattern) {
  return Parser(pattern).Parse();
}

Result<CodePointSet> ParseClass(std::string_view text, size_t& pos) {
  Parser parser(text, pos);
  NEREID_ASSIGN_OR_RETURN(CodePointSet set, parser.ParseClass());
  pos = parser.pos();
  return set;
}

}  // namespace nereid::llm::grammar
