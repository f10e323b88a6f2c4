// The syntax tree of a template. Immutable once parsed. [any thread]
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/tokenizer/lib/chat/jinja/value.h"

namespace nereid::tokenizer::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind {
  kConstant,
  kName,         // `name`
  kTuple,        // children
  kList,         // children
  kDict,         // children: key, value, key, value ...
  kConditional,  // children: condition, value, else (may be null)
  kOr,           // children: left, right
  kAnd,
  kNot,      // child
  kCompare,  // children[0] operators[0] children[1] operators[1] ...
  kBinary,   // operators[0]; children: left, right
  kConcat,   // children, joined by ~
  kNegate,
  kPlus,
  kAttribute,           // children[0] . name
  kElement,             // children[0] [ children[1] ]
  kSlice,               // children: begin, end, step; each may be null; only below kElement
  kCall,                // children[0] is called with `arguments`
  kFilter,              // children[0] | name(arguments); children[0] is null in a filter block
  kTest,                // children[0] is name(arguments)
  kNamespaceAttribute,  // name.attribute as the target of an assignment
};

struct Expression {
  ExpressionKind kind;
  int line;
  int height = 1;  // of the tree below, this node included
  std::string name = {};
  std::string attribute = {};
  Value constant = {};
  std::vector<ExpressionPtr> children = {};
  std::vector<std::string> operators = {};

  // The arguments of kCall, kFilter and kTest.
  std::vector<ExpressionPtr> positional = {};
  std::vector<std::pair<std::string, ExpressionPtr>> named = {};
  ExpressionPtr extra_positional = nullptr;  // *expression
  ExpressionPtr extra_named = nullptr;       // **expression
};

struct Statement;
using Block = std::vector<Statement>;

enum class StatementKind {
  kData,      // `text` is written
  kOutput,    // the expressions are written
  kSet,       // target = value
  kSetBlock,  // target = output of body, through `filter`
  kFor,
  kIf,
  kMacro,
  kCall,    // a call block: `value` is a call, the body is its caller
  kFilter,  // the output of body through `filter`
  kWith,    // a scope with assignments
  kScope,   // a scope without: block, autoescape, generation
  kBreak,
  kContinue,
};

struct Parameter {
  std::string name;
  ExpressionPtr default_value;  // may be null
};

struct Statement {
  StatementKind kind;
  int line;
  std::string text = {};  // data, or the name of a macro
  std::vector<ExpressionPtr> expressions = {};
  ExpressionPtr target = nullptr;
  ExpressionPtr value = nullptr;      // what is assigned, iterated or called
  ExpressionPtr condition = nullptr;  // of kFor
  ExpressionPtr filter = nullptr;
  bool is_recursive = false;  // of kFor
  Block body = {};
  Block else_body = {};
  // kIf: condition and body of each branch; else_body follows.
  std::vector<std::pair<ExpressionPtr, Block>> branches = {};
  std::vector<Parameter> parameters = {};                                 // kMacro, kCall
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments = {};  // kWith
};

}  // namespace nereid::tokenizer::jinja
