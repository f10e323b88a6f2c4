// See parser.h.
#include "backends/tokenizer/lib/chat/jinja/parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backends/tokenizer/lib/chat/jinja/expression_parser.h"

namespace nereid::tokenizer::jinja {
namespace {

class Parser final : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Result<Block> Run() { return ParseBlock({}); }

 private:
  // Parses until a block whose name is one of `ends`, of which it consumes "{%" alone; until the
  // end of the template if there are none.
  Result<Block> ParseBlock(Names ends) {
    const Nesting nesting(*this);
    NEREID_RETURN_IF_ERROR(CheckDepth());
    Block block;
    while (true) {
      const Token& token = current();
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() > 0) {
          return Error("the template ends, but '", *(ends.end() - 1), "' is expected");
        }
        return block;
      }
      if (token.kind == TokenKind::kData) {
        block.push_back({StatementKind::kData, token.line, token.text});
        Advance();
      } else if (token.kind == TokenKind::kVariableBegin) {
        NEREID_RETURN_IF_ERROR(ParseOutput(block));
      } else {
        Advance();  // {%
        if (std::any_of(ends.begin(), ends.end(),
                        [&](std::string_view end) { return current().IsName(end); })) {
          return block;
        }
        NEREID_ASSIGN_OR_RETURN(Statement statement, ParseStatement());
        NEREID_RETURN_IF_ERROR(ExpectBlockEnd());
        block.push_back(std::move(statement));
      }
    }
  }

  // The body of a statement: from the end of its opening tag to the name of its closing one.
  Result<Block> ParseBody(Names ends) {
    SkipOperator(":");
    NEREID_RETURN_IF_ERROR(ExpectBlockEnd());
    return ParseBlock(ends);
  }
  Result<Block> ParseWholeBody(std::string_view end) {
    Result<Block> body = ParseBody({end});
    if (body.ok()) Advance();
    return body;
  }

  Status ParseOutput(Block& block) {
    Statement output{StatementKind::kOutput, current().line};
    Advance();
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple());
    if (current().kind != TokenKind::kVariableEnd) return ExpectedError("'}}'");
    Advance();
    output.expressions.push_back(std::move(value));
    block.push_back(std::move(output));
    return {};
  }

  Result<Statement> ParseStatement() {
    const int line = current().line;
    if (current().kind != TokenKind::kName) return ExpectedError("the name of a statement");
    const std::string name = current().text;
    Advance();
    if (name == "set") return ParseSet(line);
    if (name == "for") return ParseFor(line);
    if (name == "if") return ParseIf(line);
    if (name == "macro") return ParseMacro(line);
    if (name == "call") return ParseCallBlock(line);
    if (name == "filter") return ParseFilterBlock(line);
    if (name == "with") return ParseWith(line);
    if (name == "print") return ParsePrint(line);
    if (name == "block") return ParseNamedBlock(line);
    if (name == "generation") return ParseScope(line, "endgeneration");
    if (name == "autoescape") return ParseAutoescape(line);
    if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) return Error("'", name, "' outside of a loop");
      return Statement{name == "break" ? StatementKind::kBreak : StatementKind::kContinue, line};
    }
    if (name == "include" || name == "import" || name == "from" || name == "extends") {
      return UnsupportedError("line ", line, ": '", name,
                              "' is not supported: a chat template is one file");
    }
    return Error("unknown statement '", name, "'");
  }

  Result<Statement> ParseSet(int line) {
    Statement set{StatementKind::kSet, line};
    NEREID_ASSIGN_OR_RETURN(set.target, ParseTarget(/*may_be_namespace=*/true));
    if (SkipOperator("=")) {
      NEREID_ASSIGN_OR_RETURN(set.value, ParseTuple());
      return set;
    }
    set.kind = StatementKind::kSetBlock;
    if (current().IsOperator("|")) {
      NEREID_ASSIGN_OR_RETURN(set.filter, ParseFilters(nullptr));
    }
    NEREID_ASSIGN_OR_RETURN(set.body, ParseWholeBody("endset"));
    return set;
  }

  Result<Statement> ParseFor(int line) {
    Statement loop{StatementKind::kFor, line};
    NEREID_ASSIGN_OR_RETURN(loop.target, ParseTarget(/*may_be_namespace=*/false));
    if (!SkipName("in")) return ExpectedError("'in'");
    NEREID_ASSIGN_OR_RETURN(loop.value, ParseTuple(/*has_conditional=*/false));
    if (SkipName("if")) {
      NEREID_ASSIGN_OR_RETURN(loop.condition, ParseExpression());
    }
    loop.is_recursive = SkipName("recursive");
    ++loop_depth_;
    Result<Block> body = ParseBody({"else", "endfor"});
    --loop_depth_;
    NEREID_ASSIGN_OR_RETURN(loop.body, std::move(body));
    if (SkipName("else")) {
      NEREID_ASSIGN_OR_RETURN(loop.else_body, ParseWholeBody("endfor"));
    } else {
      Advance();
    }
    return loop;
  }

  Result<Statement> ParseIf(int line) {
    Statement statement{StatementKind::kIf, line};
    do {
      NEREID_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseTuple(/*has_conditional=*/false));
      NEREID_ASSIGN_OR_RETURN(Block body, ParseBody({"elif", "else", "endif"}));
      statement.branches.emplace_back(std::move(condition), std::move(body));
    } while (SkipName("elif"));
    if (SkipName("else")) {
      NEREID_ASSIGN_OR_RETURN(statement.else_body, ParseWholeBody("endif"));
    } else {
      Advance();
    }
    return statement;
  }

  Status ParseParameters(std::vector<Parameter>& parameters) {
    NEREID_RETURN_IF_ERROR(ExpectOperator("("));
    while (!SkipOperator(")")) {
      if (!parameters.empty()) NEREID_RETURN_IF_ERROR(ExpectOperator(","));
      Parameter parameter;
      NEREID_ASSIGN_OR_RETURN(parameter.name, ExpectName());
      if (SkipOperator("=")) {
        NEREID_ASSIGN_OR_RETURN(parameter.default_value, ParseExpression());
      } else if (!parameters.empty() && parameters.back().default_value != nullptr) {
        return Error("parameter '", parameter.name, "' without default follows one with a default");
      }
      parameters.push_back(std::move(parameter));
    }
    return {};
  }

  // A body in which `break` does not refer to a loop around it.
  Result<Block> ParseFunctionBody(std::string_view end) {
    const int loop_depth = std::exchange(loop_depth_, 0);
    Result<Block> body = ParseWholeBody(end);
    loop_depth_ = loop_depth;
    return body;
  }

  Result<Statement> ParseMacro(int line) {
    Statement macro{StatementKind::kMacro, line};
    NEREID_ASSIGN_OR_RETURN(macro.text, ExpectName());
    NEREID_RETURN_IF_ERROR(ParseParameters(macro.parameters));
    NEREID_ASSIGN_OR_RETURN(macro.body, ParseFunctionBody("endmacro"));
    return macro;
  }

  Result<Statement> ParseCallBlock(int line) {
    Statement call{StatementKind::kCall, line};
    if (current().IsOperator("(")) NEREID_RETURN_IF_ERROR(ParseParameters(call.parameters));
    NEREID_ASSIGN_OR_RETURN(call.value, ParseExpression());
    if (call.value->kind != ExpressionKind::kCall) return Error("expected a call in a call block");
    NEREID_ASSIGN_OR_RETURN(call.body, ParseFunctionBody("endcall"));
    return call;
  }

  Result<Statement> ParseFilterBlock(int line) {
    Statement filter{StatementKind::kFilter, line};
    NEREID_ASSIGN_OR_RETURN(filter.filter, ParseFilter(nullptr));
    NEREID_ASSIGN_OR_RETURN(filter.filter, ParseFilters(std::move(filter.filter)));
    NEREID_ASSIGN_OR_RETURN(filter.body, ParseWholeBody("endfilter"));
    return filter;
  }

  Result<Statement> ParseWith(int line) {
    Statement with{StatementKind::kWith, line};
    while (current().kind != TokenKind::kBlockEnd) {
      if (!with.assignments.empty()) NEREID_RETURN_IF_ERROR(ExpectOperator(","));
      NEREID_ASSIGN_OR_RETURN(ExpressionPtr target, ParseTarget(/*may_be_namespace=*/false));
      NEREID_RETURN_IF_ERROR(ExpectOperator("="));
      NEREID_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      with.assignments.emplace_back(std::move(target), std::move(value));
    }
    NEREID_ASSIGN_OR_RETURN(with.body, ParseWholeBody("endwith"));
    return with;
  }

  Result<Statement> ParsePrint(int line) {
    Statement print{StatementKind::kOutput, line};
    while (current().kind != TokenKind::kBlockEnd) {
      if (!print.expressions.empty()) NEREID_RETURN_IF_ERROR(ExpectOperator(","));
      NEREID_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      print.expressions.push_back(std::move(value));
    }
    return print;
  }

  Result<Statement> ParseScope(int line, std::string_view end) {
    Statement scope{StatementKind::kScope, line};
    NEREID_ASSIGN_OR_RETURN(scope.body, ParseWholeBody(end));
    return scope;
  }

  Result<Statement> ParseNamedBlock(int line) {
    NEREID_ASSIGN_OR_RETURN(const std::string name, ExpectName());
    SkipName("scoped");
    SkipName("required");
    Result<Statement> scope = ParseScope(line, "endblock");
    if (scope.ok()) SkipName(name);
    return scope;
  }

  Result<Statement> ParseAutoescape(int line) {
    NEREID_ASSIGN_OR_RETURN(ExpressionPtr mode, ParseExpression());
    if (mode->kind != ExpressionKind::kConstant || IsTrue(mode->constant)) {
      return UnsupportedError("line ", line, ": 'autoescape' is supported with 'false' only");
    }
    return ParseScope(line, "endautoescape");
  }

  // --- Targets of assignments ---

  ParsedExpression ParseTargetName(bool may_be_namespace) {
    const int line = current().line;
    NEREID_ASSIGN_OR_RETURN(const std::string name, ExpectName());
    constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none",
                                                            "True", "False", "None"};
    if (std::find(kConstants.begin(), kConstants.end(), name) != kConstants.end()) {
      return Error("cannot assign to '", name, "'");
    }
    ExpressionPtr target = Make(ExpressionKind::kName, line);
    target->name = name;
    if (may_be_namespace && SkipOperator(".")) {
      target->kind = ExpressionKind::kNamespaceAttribute;
      NEREID_ASSIGN_OR_RETURN(target->attribute, ExpectName());
    }
    return target;
  }

  ParsedExpression ParseTarget(bool may_be_namespace) {
    const Nesting nesting(*this);
    NEREID_RETURN_IF_ERROR(CheckDepth());
    const int line = current().line;
    std::vector<ExpressionPtr> names;
    bool is_tuple = false;
    while (true) {
      ExpressionPtr target;
      if (SkipOperator("(")) {
        NEREID_ASSIGN_OR_RETURN(target, ParseTarget(may_be_namespace));
        NEREID_RETURN_IF_ERROR(ExpectOperator(")"));
      } else {
        NEREID_ASSIGN_OR_RETURN(target, ParseTargetName(may_be_namespace));
      }
      names.push_back(std::move(target));
      if (!SkipOperator(",")) break;
      is_tuple = true;
      if (current().IsOperator("=") || current().IsOperator(")") || current().IsName("in")) break;
    }
    if (!is_tuple) return std::move(names.front());
    return Make(ExpressionKind::kTuple, line, std::move(names));
  }
};

}  // namespace

Result<Block> Parse(std::string_view source) {
  NEREID_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace nereid::tokenizer::jinja
