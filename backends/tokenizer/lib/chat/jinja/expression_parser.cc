// See expression_parser.h.
#include "backends/tokenizer/lib/chat/jinja/expression_parser.h"

#include <algorithm>
#include <array>

namespace nereid::tokenizer::jinja {

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "text outside of tags";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return "'" + token.text.substr(0, 40) + "'";
  }
}

bool ExpressionParser::IsTupleEnd() const {
  const Token& token = current();
  return token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd ||
         token.IsOperator(")") || token.IsName("recursive");
}

ExpressionParser::ParsedExpression ExpressionParser::ParseTuple(bool has_conditional,
                                                                bool may_be_empty) {
  const int line = current().line;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!IsTupleEnd()) {
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr item, has_conditional ? ParseExpression() : ParseOr());
    items.push_back(std::move(item));
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !may_be_empty) return ExpectedError("an expression");
  return Make(ExpressionKind::kTuple, line, std::move(items));
}

ExpressionParser::ParsedExpression ExpressionParser::ParseExpression() {
  const Nesting nesting(*this);
  NEREID_RETURN_IF_ERROR(CheckDepth());
  NEREID_ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
  while (current().IsName("if")) {
    const int line = current().line;
    Advance();
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    ExpressionPtr otherwise;
    if (SkipName("else")) {
      NEREID_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    value = Make(ExpressionKind::kConditional, line,
                 ListOf(std::move(condition), std::move(value), std::move(otherwise)));
    NEREID_RETURN_IF_ERROR(CheckHeight(*value));
  }
  return value;
}

ExpressionParser::ParsedExpression ExpressionParser::ParseOr() {
  NEREID_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (current().IsName("or")) {
    const int line = current().line;
    Advance();
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    left = Make(ExpressionKind::kOr, line, ListOf(std::move(left), std::move(right)));
    NEREID_RETURN_IF_ERROR(CheckHeight(*left));
  }
  return left;
}

ExpressionParser::ParsedExpression ExpressionParser::ParseAnd() {
  NEREID_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (current().IsName("and")) {
    const int line = current().line;
    Advance();
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    left = Make(ExpressionKind::kAnd, line, ListOf(std::move(left), std::move(right)));
    NEREID_RETURN_IF_ERROR(CheckHeight(*left));
  }
  return left;
}

ExpressionParser::ParsedExpression ExpressionParser::ParseNot() {
  if (!current().IsName("not")) return ParseCompare();
  const Nesting nesting(*this);
  NEREID_RETURN_IF_ERROR(CheckDepth());
  const int line = current().line;
  Advance();
  NEREID_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  return Make(ExpressionKind::kNot, line, ListOf(std::move(operand)));
}

std::string ExpressionParser::TakeComparison() {
  for (const std::string_view op : {"==", "!=", "<", "<=", ">", ">="}) {
    if (SkipOperator(op)) return std::string(op);
  }
  if (SkipName("in")) return "in";
  if (current().IsName("not") && next().IsName("in")) {
    Advance();
    Advance();
    return "not in";
  }
  return {};
}

ExpressionParser::ParsedExpression ExpressionParser::ParseCompare() {
  const int line = current().line;
  NEREID_ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  std::string op = TakeComparison();
  if (op.empty()) return first;
  ExpressionPtr compare = Make(ExpressionKind::kCompare, line, ListOf(std::move(first)));
  for (; !op.empty(); op = TakeComparison()) {
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseSum());
    compare->operators.push_back(op);
    compare->children.push_back(std::move(operand));
  }
  UpdateHeight(*compare);
  return compare;
}

ExpressionParser::ParsedExpression ExpressionParser::MakeBinary(std::string_view op, int line,
                                                                ExpressionPtr left,
                                                                ExpressionPtr right) {
  ExpressionPtr node =
      Make(ExpressionKind::kBinary, line, ListOf(std::move(left), std::move(right)));
  node->operators.emplace_back(op);
  NEREID_RETURN_IF_ERROR(CheckHeight(*node));
  return node;
}

std::string_view ExpressionParser::TakeOperator(Names ops) {
  for (const std::string_view op : ops) {
    if (SkipOperator(op)) return op;
  }
  return {};
}

ExpressionParser::ParsedExpression ExpressionParser::ParseSum() {
  NEREID_ASSIGN_OR_RETURN(ExpressionPtr left, ParseConcat());
  while (true) {
    const int line = current().line;
    const std::string_view op = TakeOperator({"+", "-"});
    if (op.empty()) return left;
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr right, ParseConcat());
    NEREID_ASSIGN_OR_RETURN(left, MakeBinary(op, line, std::move(left), std::move(right)));
  }
}

ExpressionParser::ParsedExpression ExpressionParser::ParseConcat() {
  const int line = current().line;
  NEREID_ASSIGN_OR_RETURN(ExpressionPtr first, ParseProduct());
  if (!current().IsOperator("~")) return first;
  std::vector<ExpressionPtr> items = ListOf(std::move(first));
  while (SkipOperator("~")) {
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr item, ParseProduct());
    items.push_back(std::move(item));
  }
  return Make(ExpressionKind::kConcat, line, std::move(items));
}

ExpressionParser::ParsedExpression ExpressionParser::ParseProduct() {
  NEREID_ASSIGN_OR_RETURN(ExpressionPtr left, ParsePower());
  while (true) {
    const int line = current().line;
    const std::string_view op = TakeOperator({"*", "/", "//", "%"});
    if (op.empty()) return left;
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr right, ParsePower());
    NEREID_ASSIGN_OR_RETURN(left, MakeBinary(op, line, std::move(left), std::move(right)));
  }
}

ExpressionParser::ParsedExpression ExpressionParser::ParsePower() {
  NEREID_ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(/*has_filters=*/true));
  while (true) {
    const int line = current().line;
    if (!SkipOperator("**")) return left;
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(/*has_filters=*/true));
    NEREID_ASSIGN_OR_RETURN(left, MakeBinary("**", line, std::move(left), std::move(right)));
  }
}

ExpressionParser::ParsedExpression ExpressionParser::ParseUnary(bool has_filters) {
  const Nesting nesting(*this);
  NEREID_RETURN_IF_ERROR(CheckDepth());
  const int line = current().line;
  ExpressionPtr node;
  if (const std::string_view op = TakeOperator({"-", "+"}); !op.empty()) {
    NEREID_ASSIGN_OR_RETURN(node, ParseUnary(/*has_filters=*/false));
    node = Make(op == "-" ? ExpressionKind::kNegate : ExpressionKind::kPlus, line,
                ListOf(std::move(node)));
  } else {
    NEREID_ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  NEREID_ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (has_filters) {
    NEREID_ASSIGN_OR_RETURN(node, ParseFiltersAndTests(std::move(node)));
  }
  return node;
}

ExpressionParser::ParsedExpression ExpressionParser::ParsePrimary() {
  const Token& token = current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::kName:
      return ParseNameOrConstant();
    case TokenKind::kText: {
      std::string text;
      for (; current().kind == TokenKind::kText; Advance()) text += current().text;
      return MakeConstant(Value(std::move(text)), line);
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat: {
      Value value = token.kind == TokenKind::kInteger ? Value(token.integer) : Value(token.number);
      Advance();
      return MakeConstant(std::move(value), line);
    }
    default:
      break;
  }
  if (SkipOperator("(")) {
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr inner,
                            ParseTuple(/*has_conditional=*/true, /*may_be_empty=*/true));
    NEREID_RETURN_IF_ERROR(ExpectOperator(")"));
    return inner;
  }
  if (SkipOperator("[")) return ParseList(line);
  if (SkipOperator("{")) return ParseDict(line);
  return ExpectedError("an expression");
}

ExpressionParser::ParsedExpression ExpressionParser::MakeConstant(Value value, int line) {
  ExpressionPtr node = Make(ExpressionKind::kConstant, line);
  node->constant = std::move(value);
  return node;
}

ExpressionParser::ParsedExpression ExpressionParser::ParseNameOrConstant() {
  const int line = current().line;
  const std::string name = current().text;
  Advance();
  if (name == "true" || name == "True") return MakeConstant(Value(true), line);
  if (name == "false" || name == "False") return MakeConstant(Value(false), line);
  if (name == "none" || name == "None") return MakeConstant(Value(), line);
  ExpressionPtr node = Make(ExpressionKind::kName, line);
  node->name = name;
  return node;
}

ExpressionParser::ParsedExpression ExpressionParser::ParseList(int line) {
  std::vector<ExpressionPtr> items;
  while (!SkipOperator("]")) {
    if (!items.empty()) {
      NEREID_RETURN_IF_ERROR(ExpectOperator(","));
      if (SkipOperator("]")) break;
    }
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    items.push_back(std::move(item));
  }
  return Make(ExpressionKind::kList, line, std::move(items));
}

ExpressionParser::ParsedExpression ExpressionParser::ParseDict(int line) {
  std::vector<ExpressionPtr> items;
  while (!SkipOperator("}")) {
    if (!items.empty()) {
      NEREID_RETURN_IF_ERROR(ExpectOperator(","));
      if (SkipOperator("}")) break;
    }
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    NEREID_RETURN_IF_ERROR(ExpectOperator(":"));
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    items.push_back(std::move(key));
    items.push_back(std::move(value));
  }
  return Make(ExpressionKind::kDict, line, std::move(items));
}

ExpressionParser::ParsedExpression ExpressionParser::ParsePostfix(ExpressionPtr node) {
  while (true) {
    NEREID_RETURN_IF_ERROR(CheckHeight(*node));
    const int line = current().line;
    if (SkipOperator(".")) {
      NEREID_ASSIGN_OR_RETURN(node, ParseAttribute(std::move(node), line));
    } else if (SkipOperator("[")) {
      NEREID_ASSIGN_OR_RETURN(node, ParseElement(std::move(node), line));
    } else if (current().IsOperator("(")) {
      NEREID_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

ExpressionParser::ParsedExpression ExpressionParser::ParseAttribute(ExpressionPtr object,
                                                                    int line) {
  if (current().kind == TokenKind::kInteger) {
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr index, MakeConstant(Value(current().integer), line));
    Advance();
    return Make(ExpressionKind::kElement, line, ListOf(std::move(object), std::move(index)));
  }
  ExpressionPtr node = Make(ExpressionKind::kAttribute, line, ListOf(std::move(object)));
  NEREID_ASSIGN_OR_RETURN(node->name, ExpectName());
  return node;
}

ExpressionParser::ParsedExpression ExpressionParser::ParseElement(ExpressionPtr object, int line) {
  std::vector<ExpressionPtr> indices;
  while (!SkipOperator("]")) {
    if (!indices.empty()) NEREID_RETURN_IF_ERROR(ExpectOperator(","));
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr index, ParseIndex());
    indices.push_back(std::move(index));
  }
  ExpressionPtr index = indices.size() == 1
                            ? std::move(indices.front())
                            : Make(ExpressionKind::kTuple, line, std::move(indices));
  return Make(ExpressionKind::kElement, line, ListOf(std::move(object), std::move(index)));
}

bool ExpressionParser::IsIndexEnd() const {
  return current().IsOperator("]") || current().IsOperator(",");
}

ExpressionParser::ParsedExpression ExpressionParser::ParseIndex() {
  const int line = current().line;
  std::vector<ExpressionPtr> parts;
  if (SkipOperator(":")) {
    parts.push_back(nullptr);
  } else {
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr index, ParseExpression());
    if (!SkipOperator(":")) return index;
    parts.push_back(std::move(index));
  }
  for (int part = 1; part <= 2; ++part) {
    if (part == 2 && !SkipOperator(":")) {
      parts.push_back(nullptr);
    } else if (current().IsOperator(":") || IsIndexEnd()) {
      parts.push_back(nullptr);
    } else {
      NEREID_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      parts.push_back(std::move(value));
    }
  }
  return Make(ExpressionKind::kSlice, line, std::move(parts));
}

Status ExpressionParser::ParseArguments(Expression& call) {
  NEREID_RETURN_IF_ERROR(ExpectOperator("("));
  bool needs_comma = false;
  while (!SkipOperator(")")) {
    if (needs_comma) {
      NEREID_RETURN_IF_ERROR(ExpectOperator(","));
      if (SkipOperator(")")) break;
    }
    needs_comma = true;
    NEREID_RETURN_IF_ERROR(ParseArgument(call));
  }
  UpdateHeight(call);
  return {};
}

Status ExpressionParser::ParseArgument(Expression& call) {
  if (SkipOperator("**")) {
    if (call.extra_named != nullptr) return Error("a second ** argument");
    NEREID_ASSIGN_OR_RETURN(call.extra_named, ParseExpression());
  } else if (SkipOperator("*")) {
    if (call.extra_positional != nullptr) return Error("a second * argument");
    NEREID_ASSIGN_OR_RETURN(call.extra_positional, ParseExpression());
  } else if (current().kind == TokenKind::kName && next().IsOperator("=")) {
    const std::string name = current().text;
    Advance();
    Advance();
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    call.named.emplace_back(name, std::move(value));
  } else {
    if (!call.named.empty() || call.extra_positional != nullptr || call.extra_named != nullptr) {
      return Error("an argument by position follows one by name");
    }
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    call.positional.push_back(std::move(value));
  }
  return {};
}

ExpressionParser::ParsedExpression ExpressionParser::ParseCall(ExpressionPtr callee) {
  ExpressionPtr call = Make(ExpressionKind::kCall, current().line, ListOf(std::move(callee)));
  NEREID_RETURN_IF_ERROR(ParseArguments(*call));
  return call;
}

ExpressionParser::ParsedExpression ExpressionParser::ParseFiltersAndTests(ExpressionPtr node) {
  while (true) {
    NEREID_RETURN_IF_ERROR(CheckHeight(*node));
    if (current().IsOperator("|")) {
      NEREID_ASSIGN_OR_RETURN(node, ParseFilters(std::move(node)));
    } else if (SkipName("is")) {
      NEREID_ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (current().IsOperator("(")) {
      NEREID_ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

ExpressionParser::ParsedExpression ExpressionParser::ParseFilters(ExpressionPtr node) {
  while (SkipOperator("|")) {
    NEREID_ASSIGN_OR_RETURN(node, ParseFilter(std::move(node)));
    NEREID_RETURN_IF_ERROR(CheckHeight(*node));
  }
  return node;
}

ExpressionParser::ParsedExpression ExpressionParser::ParseFilter(ExpressionPtr node) {
  ExpressionPtr filter = Make(ExpressionKind::kFilter, current().line, ListOf(std::move(node)));
  NEREID_ASSIGN_OR_RETURN(filter->name, ExpectDottedName());
  if (current().IsOperator("(")) NEREID_RETURN_IF_ERROR(ParseArguments(*filter));
  return filter;
}

bool ExpressionParser::IsTestArgument() const {
  const Token& token = current();
  if (token.kind == TokenKind::kName) {
    return !token.IsName("else") && !token.IsName("or") && !token.IsName("and");
  }
  return token.kind == TokenKind::kText || token.kind == TokenKind::kInteger ||
         token.kind == TokenKind::kFloat || token.IsOperator("[") || token.IsOperator("{");
}

ExpressionParser::ParsedExpression ExpressionParser::ParseTest(ExpressionPtr node) {
  const int line = current().line;
  const bool is_negated = SkipName("not");
  ExpressionPtr test = Make(ExpressionKind::kTest, line, ListOf(std::move(node)));
  NEREID_ASSIGN_OR_RETURN(test->name, ExpectDottedName());
  if (current().IsOperator("(")) {
    NEREID_RETURN_IF_ERROR(ParseArguments(*test));
  } else if (IsTestArgument()) {
    if (current().IsName("is")) return Error("tests cannot be chained with 'is'");
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
    NEREID_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    test->positional.push_back(std::move(argument));
    UpdateHeight(*test);
  }
  if (!is_negated) return test;
  return Make(ExpressionKind::kNot, line, ListOf(std::move(test)));
}

}  // namespace nereid::tokenizer::jinja
