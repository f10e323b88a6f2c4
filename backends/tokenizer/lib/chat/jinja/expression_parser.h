// Parses the expressions of a template. The base of the parser of its statements. [one thread]
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/tokenizer/lib/chat/jinja/ast.h"
#include "backends/tokenizer/lib/chat/jinja/lexer.h"
#include "nereid/status.h"

namespace nereid::tokenizer::jinja {

// Blocks and expressions may be nested at most this deep, because parsing and rendering recurse.
inline constexpr int kMaxSyntaxDepth = 200;

// How error texts name a token.
std::string Describe(const Token& token);

class ExpressionParser {
 protected:
  using Names = std::initializer_list<std::string_view>;
  using ParsedExpression = Result<ExpressionPtr>;

  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Counts the nesting of the function that creates it.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser) : parser_(parser) { ++parser_.depth_; }
    ~Nesting() { --parser_.depth_; }

   private:
    ExpressionParser& parser_;
  };
  Status CheckDepth() const {
    if (depth_ <= kMaxSyntaxDepth) return {};
    return Error("blocks and expressions are nested deeper than the limit of ", kMaxSyntaxDepth);
  }

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void Advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool SkipName(std::string_view name) {
    if (!current().IsName(name)) return false;
    Advance();
    return true;
  }
  bool SkipOperator(std::string_view op) {
    if (!current().IsOperator(op)) return false;
    Advance();
    return true;
  }
  template <typename... Args>
  Status Error(const Args&... args) const {
    return InvalidArgError("line ", current().line, ": ", args...);
  }
  Status ExpectedError(std::string_view what) const {
    return Error("expected ", what, ", got ", Describe(current()));
  }
  Status ExpectOperator(std::string_view op) {
    if (!SkipOperator(op)) return ExpectedError(StrCat("'", op, "'"));
    return {};
  }
  Status ExpectBlockEnd() {
    if (current().kind != TokenKind::kBlockEnd) return ExpectedError("'%}'");
    Advance();
    return {};
  }
  Result<std::string> ExpectName() {
    if (current().kind != TokenKind::kName) return ExpectedError("a name");
    std::string name = current().text;
    Advance();
    return name;
  }

  // The name of a filter or test: names with dots between them.
  Result<std::string> ExpectDottedName() {
    NEREID_ASSIGN_OR_RETURN(std::string name, ExpectName());
    while (SkipOperator(".")) {
      NEREID_ASSIGN_OR_RETURN(const std::string part, ExpectName());
      name += "." + part;
    }
    return name;
  }

  ExpressionPtr Make(ExpressionKind kind, int line, std::vector<ExpressionPtr> children = {}) {
    auto node = std::make_unique<Expression>(Expression{kind, line});
    node->children = std::move(children);
    UpdateHeight(*node);
    return node;
  }
  static void UpdateHeight(Expression& node) {
    const auto cover = [&](const ExpressionPtr& child) {
      if (child != nullptr) node.height = std::max(node.height, child->height + 1);
    };
    for (const auto& child : node.children) cover(child);
    for (const auto& argument : node.positional) cover(argument);
    for (const auto& [name, argument] : node.named) cover(argument);
    cover(node.extra_positional);
    cover(node.extra_named);
  }
  template <typename... Children>
  static std::vector<ExpressionPtr> ListOf(Children... children) {
    std::vector<ExpressionPtr> list;
    (list.push_back(std::move(children)), ...);
    return list;
  }
  // A chain such as a + b + c is a tree that grows to the left without nested calls of the parser.
  Status CheckHeight(const Expression& node) const {
    if (node.height <= kMaxSyntaxDepth) return {};
    return Error("an expression is nested deeper than the limit of ", kMaxSyntaxDepth);
  }

  // Expressions, from the loosest to the tightest operator.
  bool IsTupleEnd() const;
  // One expression, or several with commas between them.
  ParsedExpression ParseTuple(bool has_conditional = true, bool may_be_empty = false);
  ParsedExpression ParseExpression();
  ParsedExpression ParseOr();
  ParsedExpression ParseAnd();
  ParsedExpression ParseNot();
  // The comparison at the current token, which it consumes; empty if there is none.
  std::string TakeComparison();
  ParsedExpression ParseCompare();
  ParsedExpression MakeBinary(std::string_view op, int line, ExpressionPtr left,
                              ExpressionPtr right);
  // The operator among `ops` at the current token, which it consumes; empty if there is none.
  std::string_view TakeOperator(Names ops);
  ParsedExpression ParseSum();
  ParsedExpression ParseConcat();
  ParsedExpression ParseProduct();
  ParsedExpression ParsePower();
  ParsedExpression ParseUnary(bool has_filters);
  ParsedExpression ParsePrimary();
  ParsedExpression MakeConstant(Value value, int line);
  ParsedExpression ParseNameOrConstant();
  ParsedExpression ParseList(int line);
  ParsedExpression ParseDict(int line);
  // Attributes, elements and calls after `node`.
  ParsedExpression ParsePostfix(ExpressionPtr node);
  ParsedExpression ParseAttribute(ExpressionPtr object, int line);
  ParsedExpression ParseElement(ExpressionPtr object, int line);
  bool IsIndexEnd() const;
  // An index or a slice.
  ParsedExpression ParseIndex();
  Status ParseArguments(Expression& call);
  Status ParseArgument(Expression& call);
  ParsedExpression ParseCall(ExpressionPtr callee);
  ParsedExpression ParseFiltersAndTests(ExpressionPtr node);
  // "| name(arguments)", as often as it is there.
  ParsedExpression ParseFilters(ExpressionPtr node);
  ParsedExpression ParseFilter(ExpressionPtr node);
  // Whether the current token begins an argument of a test that has no parentheses.
  bool IsTestArgument() const;
  ParsedExpression ParseTest(ExpressionPtr node);

  int loop_depth_ = 0;  // loops around the current statement, within its function

 private:
  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace nereid::tokenizer::jinja
