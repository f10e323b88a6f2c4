// See ebnf.h.
#include "backends/llm_core/grammar/ebnf.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/llm_core/grammar/code_points.h"
#include "backends/llm_core/grammar/regex_parser.h"
#include "backends/llm_core/grammar/regex_syntax.h"

namespace nereid::llm::grammar {
namespace {

constexpr int kMaxEbnfNesting = 200;
constexpr int kMaxEbnfCount = 100'000;  // of repetitions of what is no regular expression

struct Expression {
  enum class Kind { kRegex, kRule, kConcat, kUnion, kRepeat } kind = Kind::kConcat;
  RegexId regex = RegexPool::kEmpty;
  RuleId rule = 0;  // an index into the rules of the text
  std::vector<std::unique_ptr<Expression>> parts;
  int min = 0, max = 0;
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct NamedRule {
  std::string name;
  size_t line = 0;  // of the first use or the definition
  ExpressionPtr body;
};

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

class EbnfParser {
 public:
  EbnfParser(std::string_view text, RegexPool& pool) : text_(text), pool_(pool) {}

  Result<std::vector<NamedRule>> Parse() {
    if (!IsUtf8(text_)) return InvalidArgError("the grammar is not valid UTF-8");
    RuleOf("root");
    SkipSpace();
    while (pos_ < text_.size()) {
      const std::string_view name = TakeName();
      SkipSpace();
      if (name.empty() || !TakeText("::=")) return Fault("expected 'name ::='");
      const RuleId rule = RuleOf(name);
      if (rules_[rule].body != nullptr) return Fault("a second definition of rule '", name, "'");
      rules_[rule].line = Line();
      NEREID_ASSIGN_OR_RETURN(ExpressionPtr body, ParseUnion(0));
      rules_[rule].body = std::move(body);
      if (Peek() == ';') ++pos_;
      SkipSpace();
    }
    for (const NamedRule& rule : rules_) {
      if (rule.body == nullptr) {
        return InvalidArgError("line ", rule.line, " of the grammar: rule '", rule.name,
                               "' is not defined");
      }
    }
    return std::move(rules_);
  }

 private:
  // The line of pos_. Counts on from the last call where that is before pos_.
  size_t Line() const {
    if (pos_ < line_pos_) line_pos_ = 0, line_ = 1;
    for (; line_pos_ < pos_; ++line_pos_) line_ += text_[line_pos_] == '\n';
    return line_;
  }
  template <typename... Args>
  Status Fault(const Args&... args) const {
    return InvalidArgError("line ", Line(), " of the grammar: ", args...);
  }
  char Peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
  bool TakeText(std::string_view what) {
    if (!text_.substr(pos_).starts_with(what)) return false;
    pos_ += what.size();
    return true;
  }
  void SkipSpace() {
    while (pos_ < text_.size()) {
      if (text_[pos_] == '#') {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else if (text_[pos_] == ' ' || text_[pos_] == '\t' || text_[pos_] == '\n' ||
                 text_[pos_] == '\r') {
        ++pos_;
      } else {
        return;
      }
    }
  }
  std::string_view TakeName() {
    const size_t begin = pos_;
    while (pos_ < text_.size() && IsNameChar(text_[pos_])) ++pos_;
    return text_.substr(begin, pos_ - begin);
  }
  RuleId RuleOf(std::string_view name) {
    const auto [it, is_new] = index_.emplace(name, static_cast<RuleId>(rules_.size()));
    if (is_new) rules_.push_back({std::string(name), Line(), nullptr});
    return it->second;
  }
  // Whether the text continues with the next rule.
  bool AtRule() {
    const size_t before = pos_;
    const bool has_name = !TakeName().empty();
    SkipSpace();
    const bool found = has_name && text_.substr(pos_).starts_with("::=");
    pos_ = before;
    return found;
  }

  Result<ExpressionPtr> ParseUnion(int depth) {
    if (depth > kMaxEbnfNesting) return Fault("groups are nested too deeply");
    auto all = std::make_unique<Expression>();
    all->kind = Expression::Kind::kUnion;
    do {
      auto concat = std::make_unique<Expression>();
      while (true) {
        SkipSpace();
        const char c = Peek();
        if (c == '\0' || c == '|' || c == ')' || c == ';' || AtRule()) break;
        if (pool_.exhausted()) return Fault("the grammar is too large");
        NEREID_ASSIGN_OR_RETURN(ExpressionPtr part, ParseRepeat(depth));
        concat->parts.push_back(std::move(part));
      }
      all->parts.push_back(std::move(concat));
    } while (TakeText("|"));
    if (all->parts.size() == 1) return std::move(all->parts[0]);
    return all;
  }

  Result<ExpressionPtr> ParseRepeat(int depth) {
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr part, ParseAtom(depth));
    for (int num = 0;; ++num) {
      int min = 0, max = RegexPool::kUnlimited;
      if (Peek() == '+') {
        min = 1;
      } else if (Peek() == '?') {
        max = 1;
      } else if (Peek() == '{') {
        NEREID_RETURN_IF_ERROR(ParseCounts(min, max));
      } else if (Peek() != '*') {
        return part;
      }
      if (num > kMaxEbnfNesting) return Fault("too many quantifiers");
      ++pos_;
      auto repeat = std::make_unique<Expression>();
      repeat->kind = Expression::Kind::kRepeat;
      repeat->min = min;
      repeat->max = max;
      repeat->parts.push_back(std::move(part));
      part = std::move(repeat);
    }
  }

  // Stops before the closing brace.
  Status ParseCounts(int& min, int& max) {
    ++pos_;
    const auto number = [&](int& value) {
      SkipSpace();
      const size_t begin = pos_;
      int64_t sum = 0;
      while (Peek() >= '0' && Peek() <= '9') {
        sum = std::min<int64_t>(sum * 10 + (text_[pos_++] - '0'), 1'000'000'000);
      }
      value = static_cast<int>(sum);
      const bool found = pos_ > begin;
      SkipSpace();
      return found;
    };
    const bool has_min = number(min);
    max = min;
    if (Peek() == ',') {
      ++pos_;
      if (!number(max)) max = RegexPool::kUnlimited;
    } else if (!has_min) {
      return Fault("'{' without counts");
    }
    if (Peek() != '}') return Fault("'{' is not closed");
    if (max != RegexPool::kUnlimited && max < min) return Fault("counts in the wrong order");
    return Status::Ok();
  }

  Result<ExpressionPtr> ParseAtom(int depth) {
    auto part = std::make_unique<Expression>();
    part->kind = Expression::Kind::kRegex;
    const char c = Peek();
    if (c == '"' || c == '\'') {
      NEREID_ASSIGN_OR_RETURN(const std::string literal, ParseString(c));
      part->regex = pool_.Literal(literal);
    } else if (c == '[') {
      const size_t line = Line();
      const Result<CodePointSet> set = ParseClass(text_, pos_);
      if (!set.ok()) {
        return set.status().WithContext(StrCat("line ", line, " of the grammar"));
      }
      part->regex = SpellSet(pool_, *set, Spelling::kUtf8);
    } else if (c == '.') {
      ++pos_;
      part->regex = SpellSet(pool_, CodePointSet::All(), Spelling::kUtf8);
    } else if (c == '/') {
      NEREID_ASSIGN_OR_RETURN(part->regex, ParsePattern());
    } else if (c == '(') {
      ++pos_;
      if (Peek() == '=')
        return UnsupportedError("line ", Line(), ": look-ahead cannot be enforced");
      NEREID_ASSIGN_OR_RETURN(part, ParseUnion(depth + 1));
      if (Peek() != ')') return Fault("'(' is not closed");
      ++pos_;
    } else {
      const std::string_view name = TakeName();
      if (name.empty()) {
        return Fault("unexpected '", text_.substr(pos_, 1), "'");
      }
      part->kind = Expression::Kind::kRule;
      part->rule = RuleOf(name);
    }
    return part;
  }

  Result<std::string> ParseString(char quote) {
    std::string literal;
    for (++pos_; Peek() != quote;) {
      if (pos_ >= text_.size() || Peek() == '\n') return Fault("a string is not closed");
      if (Peek() != '\\') {
        literal += text_[pos_++];
        continue;
      }
      // An escape means the same as in a class of one character.
      size_t end = pos_ + 2;
      const char kind = pos_ + 1 < text_.size() ? text_[pos_ + 1] : '\0';
      if (kind == '\0') return Fault("a string is not closed");
      end += kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
      const std::string atom = StrCat("[", text_.substr(pos_, end - pos_), "]");
      size_t atom_pos = 0;
      const Result<CodePointSet> set = ParseClass(atom, atom_pos);
      if (!set.ok() || set->ranges().size() != 1 ||
          set->ranges()[0].first != set->ranges()[0].last) {
        return Fault("an unknown escape in a string");
      }
      AppendUtf8(set->ranges()[0].first, literal);
      pos_ = end;
    }
    ++pos_;
    return literal;
  }

  Result<RegexId> ParsePattern() {
    const size_t begin = ++pos_;
    bool in_class = false;
    for (; pos_ < text_.size() && (in_class || text_[pos_] != '/'); ++pos_) {
      if (text_[pos_] == '\n') break;
      if (text_[pos_] == '\\') ++pos_;
      if (pos_ < text_.size() && text_[pos_] == '[') in_class = true;
      if (pos_ < text_.size() && text_[pos_] == ']') in_class = false;
    }
    if (Peek() != '/') return Fault("a regular expression is not closed");
    const std::string_view pattern = text_.substr(begin, pos_ - begin);
    ++pos_;
    Result<RegexId> regex = ParseRegex(pool_, pattern, RegexMatch::kWhole, Spelling::kUtf8);
    if (!regex.ok()) return regex.status().WithContext(StrCat("line ", Line(), " of the grammar"));
    return regex;
  }

  const std::string_view text_;
  RegexPool& pool_;
  size_t pos_ = 0;
  mutable size_t line_ = 1, line_pos_ = 0;
  std::vector<NamedRule> rules_;
  std::map<std::string, RuleId, std::less<>> index_;
};

class EbnfBuilder {
 public:
  EbnfBuilder(std::vector<NamedRule>& rules, SyntaxGraph& graph)
      : rules_(rules), graph_(graph), pool_(graph.pool()) {}

  Status Build() {
    FindRegularRules();
    graph_rules_.assign(rules_.size(), kUnknown);
    RuleFor(0);
    while (!pending_.empty()) {
      const RuleId rule = pending_.back();
      pending_.pop_back();
      const RuleId own = graph_rules_[rule];
      const StateId end = Add(*rules_[rule].body, own, graph_.rule(own).start);
      graph_.Accept(end);
      if (graph_.exhausted()) break;  // Finish reports it
    }
    return count_error_;
  }

 private:
  static constexpr uint32_t kUnknown = ~0u;

  void Rules(const Expression& expression, std::vector<RuleId>& used) const {
    if (expression.kind == Expression::Kind::kRule) used.push_back(expression.rule);
    for (const ExpressionPtr& part : expression.parts) Rules(*part, used);
  }

  // Builds the expression of each rule whose rules have one.
  void FindRegularRules() {
    regular_.assign(rules_.size(), kUnknown);
    std::vector<size_t> num_open(rules_.size());
    std::vector<std::vector<RuleId>> users(rules_.size());
    std::vector<RuleId> ready;
    for (RuleId rule = 0; rule < rules_.size(); ++rule) {
      std::vector<RuleId> used;
      Rules(*rules_[rule].body, used);
      num_open[rule] = used.size();
      for (const RuleId each : used) users[each].push_back(rule);
      if (used.empty()) ready.push_back(rule);
    }
    while (!ready.empty() && !pool_.exhausted()) {
      const RuleId rule = ready.back();
      ready.pop_back();
      regular_[rule] = RegexOf(*rules_[rule].body);
      for (const RuleId user : users[rule]) {
        if (--num_open[user] == 0) ready.push_back(user);
      }
    }
  }

  // kUnknown if the expression is not regular.
  RegexId RegexOf(const Expression& expression) {
    switch (expression.kind) {
      case Expression::Kind::kRegex:
        return expression.regex;
      case Expression::Kind::kRule:
        return regular_[expression.rule];
      case Expression::Kind::kRepeat: {
        const RegexId part = RegexOf(*expression.parts[0]);
        return part == kUnknown ? kUnknown : pool_.Repeat(part, expression.min, expression.max);
      }
      default:
        break;
    }
    std::vector<RegexId> parts;
    for (const ExpressionPtr& each : expression.parts) {
      parts.push_back(RegexOf(*each));
      if (parts.back() == kUnknown) return kUnknown;
    }
    if (expression.kind == Expression::Kind::kUnion) return pool_.Union(std::move(parts));
    RegexId all = RegexPool::kEmpty;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) all = pool_.Concat(*part, all);
    return all;
  }

  RuleId RuleFor(RuleId rule) {
    if (graph_rules_[rule] == kUnknown) {
      graph_rules_[rule] = graph_.AddRule();
      pending_.push_back(rule);
    }
    return graph_rules_[rule];
  }

  // Adds states that read the expression from `from` on; returns the state behind it.
  StateId Add(const Expression& expression, RuleId own, StateId from) {
    if (graph_.exhausted()) return from;
    if (const RegexId regex = RegexOf(expression); regex != kUnknown) {
      const StateId to = graph_.AddState(own);
      graph_.Read(from, graph_.AddTerminal(regex), to);
      return to;
    }
    switch (expression.kind) {
      case Expression::Kind::kRule: {
        const StateId to = graph_.AddState(own);
        graph_.Call(from, RuleFor(expression.rule), to);
        return to;
      }
      case Expression::Kind::kUnion: {
        const StateId to = graph_.AddState(own);
        for (const ExpressionPtr& part : expression.parts) {
          const StateId begin = graph_.AddState(own);
          graph_.Skip(from, begin);
          graph_.Skip(Add(*part, own, begin), to);
        }
        return to;
      }
      case Expression::Kind::kRepeat:
        return AddRepeat(expression, own, from);
      default:
        for (const ExpressionPtr& part : expression.parts) from = Add(*part, own, from);
        return from;
    }
  }

  StateId AddRepeat(const Expression& expression, RuleId own, StateId from) {
    const int most = std::max(expression.min, expression.max);
    if (most > kMaxEbnfCount) {
      count_error_ = InvalidArgError("a repetition of ", most, " times; at most ", kMaxEbnfCount,
                                     " are allowed of what contains recursive rules");
      return from;
    }
    if (expression.max == 0) return from;
    const StateId end = graph_.AddState(own);
    if (most <= 1) {  // ?, + and *
      const StateId begin = graph_.AddState(own);
      graph_.Skip(from, begin);
      const StateId behind = Add(*expression.parts[0], own, begin);
      graph_.Skip(behind, end);
      if (expression.max == RegexPool::kUnlimited) graph_.Skip(behind, begin);
      if (expression.min == 0) graph_.Skip(begin, end);
      return end;
    }
    // The repeated part is a rule of its own, so that nested counts add up instead of multiplying.
    const RuleId part = graph_.AddRule();
    graph_.Accept(Add(*expression.parts[0], part, graph_.rule(part).start));
    for (int i = 0; i < most; ++i) {
      if (i >= expression.min) graph_.Skip(from, end);
      const StateId next = graph_.AddState(own);
      graph_.Call(from, part, next);
      from = next;
    }
    graph_.Skip(from, end);
    if (expression.max == RegexPool::kUnlimited) graph_.Call(from, part, from);
    return end;
  }

  std::vector<NamedRule>& rules_;
  SyntaxGraph& graph_;
  RegexPool& pool_;
  std::vector<RegexId> regular_;
  std::vector<RuleId> graph_rules_;
  std::vector<RuleId> pending_;
  Status count_error_;
};

}  // namespace

Status AddEbnf(std::string_view text, SyntaxGraph& graph) {
  EbnfParser parser(text, graph.pool());
  NEREID_ASSIGN_OR_RETURN(std::vector<NamedRule> rules, parser.Parse());
  return EbnfBuilder(rules, graph).Build();
}

}  // namespace nereid::llm::grammar
