// See regex_syntax.h. A pattern becomes a tree, and the tree becomes a regular expression from its
// end to its beginning: each part is built together with the expression of everything that follows
// it, which makes look-ahead an intersection and `$` a test of what follows.
#include "backends/llm_core/grammar/regex_syntax.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace nereid::llm::grammar {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr int kMaxRegexNesting = 200;
constexpr int kMaxRegexCount = 1'000'000'000;
constexpr size_t kMaxBegins = 100;  // parts of a sequence up to the last '^'

struct Part {
  enum class Kind { kSet, kConcat, kUnion, kRepeat, kBegin, kEnd, kAhead, kNotAhead } kind;
  CodePointSet set;
  std::vector<std::unique_ptr<Part>> parts;
  int min = 0, max = 0;
  bool has_begin = false;  // contains ^
  bool is_plain = true;    // contains no anchor and no look-ahead
};
using PartPtr = std::unique_ptr<Part>;

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

class Builder {
 public:
  Builder(RegexPool& pool, Spelling spelling) : pool_(pool), spelling_(spelling) {
    any_ = SpellSet(pool, CodePointSet::All(), spelling);
    all_ = pool.Repeat(any_, 0, RegexPool::kUnlimited);
  }

  RegexId Build(const Part& part, RegexMatch match) {
    RegexId all;
    if (match == RegexMatch::kWhole) {
      all = Before(part, RegexPool::kEmpty, true);
    } else {
      const RegexId later =
          pool_.Concat(part.has_begin ? pool_.Repeat(any_, 1, RegexPool::kUnlimited) : all_,
                       Before(part, all_, false));
      all = part.has_begin ? pool_.Union({Before(part, all_, true), later}) : later;
    }
    return part.is_plain ? all : pool_.Intersection({all_, all});
  }

  // Whether '^' stands where its meaning is not held. The result is then unusable.
  bool refused() const { return refused_; }

 private:
  // `part` without anchors and look-ahead.
  RegexId Plain(const Part& part) {
    switch (part.kind) {
      case Part::Kind::kSet:
        return SpellSet(pool_, part.set, spelling_);
      case Part::Kind::kConcat: {
        RegexId all = RegexPool::kEmpty;
        for (auto each = part.parts.rbegin(); each != part.parts.rend(); ++each) {
          all = pool_.Concat(Plain(**each), all);
        }
        return all;
      }
      case Part::Kind::kUnion: {
        std::vector<RegexId> operands;
        for (const PartPtr& each : part.parts) operands.push_back(Plain(*each));
        return pool_.Union(std::move(operands));
      }
      default:
        return pool_.Repeat(Plain(*part.parts[0]), part.min, part.max);
    }
  }

  // What matches `part` and then `rest`, which is everything up to the end of the text. `at_begin`:
  // the part begins where the text begins.
  RegexId Before(const Part& part, RegexId rest, bool at_begin) {
    if (part.is_plain) return pool_.Concat(Plain(part), rest);
    switch (part.kind) {
      case Part::Kind::kBegin:
        return at_begin ? rest : RegexPool::kNothing;
      case Part::Kind::kEnd:
        return pool_.Intersection({RegexPool::kEmpty, rest});
      case Part::Kind::kAhead:
        return pool_.Intersection({Before(*part.parts[0], all_, at_begin), rest});
      case Part::Kind::kNotAhead:
        return pool_.Intersection({pool_.Complement(Before(*part.parts[0], all_, at_begin)), rest});
      case Part::Kind::kUnion: {
        std::vector<RegexId> operands;
        for (const PartPtr& each : part.parts) operands.push_back(Before(*each, rest, at_begin));
        return pool_.Union(std::move(operands));
      }
      case Part::Kind::kRepeat: {
        if (part.max == 0) return rest;
        const RegexId once = Before(*part.parts[0], rest, at_begin);
        return part.min == 0 ? pool_.Union({rest, once}) : once;
      }
      case Part::Kind::kConcat:
        return Sequence(part, 0, rest, at_begin);
      default:
        return RegexPool::kNothing;
    }
  }

  // The parts from `index` on, and then `rest`.
  RegexId Sequence(const Part& part, size_t index, RegexId rest, bool at_begin) {
    size_t end = part.parts.size();  // of the parts up to the last one with '^'
    while (end > index && !part.parts[end - 1]->has_begin) --end;
    if (end > kMaxBegins) {
      refused_ = true;
      return RegexPool::kNothing;
    }
    for (size_t i = part.parts.size(); i-- > end;) rest = Before(*part.parts[i], rest, at_begin);
    return end == index ? rest : Until(part, index, end, rest, at_begin);
  }

  // The parts from `index` to `end`, the last of which has '^', and then `rest`.
  RegexId Until(const Part& part, size_t index, size_t end, RegexId rest, bool at_begin) {
    const Part& first = *part.parts[index];
    if (end == index + 1) return Before(first, rest, at_begin);
    if (first.kind >= Part::Kind::kBegin || !at_begin) {
      return Before(first, Until(part, index + 1, end, rest, at_begin), at_begin);
    }
    if (!first.is_plain) {
      refused_ = true;
      return RegexPool::kNothing;
    }
    const RegexId text = Plain(first);
    const RegexId some = pool_.Intersection({text, pool_.Complement(RegexPool::kEmpty)});
    const RegexId after_some = pool_.Concat(some, Until(part, index + 1, end, rest, false));
    if (!pool_.IsNullable(text)) return after_some;
    return pool_.Union({after_some, Until(part, index + 1, end, rest, true)});
  }

  RegexPool& pool_;
  const Spelling spelling_;
  RegexId any_, all_;
  bool refused_ = false;
};

}  // namespace

Result<RegexId> ParseRegex(RegexPool& pool, std::string_view pattern, RegexMatch match,
                           Spelling spelling) {
  Parser parser(pattern);
  NEREID_ASSIGN_OR_RETURN(const PartPtr part, parser.Parse());
  Builder builder(pool, spelling);
  const RegexId regex = builder.Build(*part, match);
  if (builder.refused()) {
    return UnsupportedError("a '^' in this position of the pattern cannot be enforced");
  }
  return regex;
}

Result<CodePointSet> ParseClass(std::string_view text, size_t& pos) {
  Parser parser(text, pos);
  NEREID_ASSIGN_OR_RETURN(CodePointSet set, parser.ParseClass());
  pos = parser.pos();
  return set;
}

}  // namespace nereid::llm::grammar
