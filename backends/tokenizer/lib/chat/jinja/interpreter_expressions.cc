// How expressions are evaluated. See interpreter.h.
#include <optional>
#include <utility>

#include "backends/tokenizer/lib/chat/jinja/interpreter.h"
#include "backends/tokenizer/lib/chat/jinja/operators.h"

namespace nereid::tokenizer::jinja {

Result<Value> Interpreter::Evaluate(const Expression& node) {
  if (++num_steps_ > limits_.max_steps) {
    return InvalidArgError("rendering exceeds the limit of ", limits_.max_steps, " steps");
  }
  if (node.kind == ExpressionKind::kConstant) return node.constant;
  if (node.kind == ExpressionKind::kName) {
    const Value* const found = FindVariable(node.name);
    return found != nullptr ? *found : Value::Undefined(StrCat("'", node.name, "' is undefined"));
  }
  const Nesting nesting(*this);
  NEREID_RETURN_IF_ERROR(CheckDepth());
  return EvaluateIn(node);
}

Result<Value> Interpreter::EvaluateIn(const Expression& node) {
  switch (node.kind) {
    case ExpressionKind::kTuple:
    case ExpressionKind::kList: {
      NEREID_ASSIGN_OR_RETURN(std::vector<Value> items, EvaluateAll(node.children));
      return MakeList(std::move(items),
                      node.kind == ExpressionKind::kTuple ? ListForm::kTuple : ListForm::kList);
    }
    case ExpressionKind::kDict:
      return EvaluateDict(node);
    case ExpressionKind::kConditional:
      return EvaluateConditional(node);
    case ExpressionKind::kOr:
    case ExpressionKind::kAnd: {
      NEREID_ASSIGN_OR_RETURN(Value left, Evaluate(*node.children[0]));
      if (IsTrue(left) == (node.kind == ExpressionKind::kOr)) return left;
      return Evaluate(*node.children[1]);
    }
    case ExpressionKind::kNot: {
      NEREID_ASSIGN_OR_RETURN(const Value operand, Evaluate(*node.children[0]));
      return Value(!IsTrue(operand));
    }
    case ExpressionKind::kCompare:
      return EvaluateCompare(node);
    case ExpressionKind::kBinary: {
      NEREID_ASSIGN_OR_RETURN(const Value left, Evaluate(*node.children[0]));
      NEREID_ASSIGN_OR_RETURN(const Value right, Evaluate(*node.children[1]));
      return Binary(*this, node.operators[0], left, right);
    }
    case ExpressionKind::kConcat:
      return EvaluateConcat(node);
    case ExpressionKind::kNegate:
    case ExpressionKind::kPlus: {
      NEREID_ASSIGN_OR_RETURN(const Value operand, Evaluate(*node.children[0]));
      return node.kind == ExpressionKind::kNegate ? Negate(operand) : Plus(operand);
    }
    case ExpressionKind::kAttribute: {
      NEREID_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.children[0]));
      return Attribute(object, node.name);
    }
    case ExpressionKind::kElement:
      return EvaluateElement(node);
    case ExpressionKind::kCall:
      return EvaluateCall(node);
    case ExpressionKind::kFilter: {
      NEREID_ASSIGN_OR_RETURN(Value input, Evaluate(*node.children[0]));
      return EvaluateFilter(node, std::move(input));
    }
    case ExpressionKind::kTest:
      return EvaluateTest(node);
    default:
      return InternalError("an expression of kind ", static_cast<int>(node.kind));
  }
}

Result<std::vector<Value>> Interpreter::EvaluateAll(const std::vector<ExpressionPtr>& nodes) {
  std::vector<Value> values;
  values.reserve(nodes.size());
  for (const ExpressionPtr& node : nodes) {
    NEREID_ASSIGN_OR_RETURN(Value value, Evaluate(*node));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Interpreter::EvaluateDict(const Expression& node) {
  Dict dict;
  for (size_t i = 0; i < node.children.size(); i += 2) {
    NEREID_ASSIGN_OR_RETURN(Value key, Evaluate(*node.children[i]));
    NEREID_ASSIGN_OR_RETURN(Value value, Evaluate(*node.children[i + 1]));
    if (!IsHashable(key)) return InvalidArgError("unhashable type: '", key.TypeName(), "'");
    dict.Set(std::move(key), std::move(value));
  }
  return MakeDict(std::move(dict));
}

Result<Value> Interpreter::EvaluateConditional(const Expression& node) {
  NEREID_ASSIGN_OR_RETURN(const Value condition, Evaluate(*node.children[0]));
  if (IsTrue(condition)) return Evaluate(*node.children[1]);
  if (node.children[2] != nullptr) return Evaluate(*node.children[2]);
  return Value::Undefined(
      "the inline if-expression evaluated to false and no else section was defined.");
}

Result<Value> Interpreter::EvaluateCompare(const Expression& node) {
  NEREID_ASSIGN_OR_RETURN(Value left, Evaluate(*node.children[0]));
  for (size_t i = 0; i < node.operators.size(); ++i) {
    NEREID_ASSIGN_OR_RETURN(Value right, Evaluate(*node.children[i + 1]));
    NEREID_ASSIGN_OR_RETURN(const bool holds, Compare(*this, node.operators[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Interpreter::EvaluateConcat(const Expression& node) {
  MarkedText text;
  for (const ExpressionPtr& child : node.children) {
    NEREID_ASSIGN_OR_RETURN(const Value value, Evaluate(*child));
    text.Append(ToText(value));
  }
  return MakeText(std::move(text));
}

Result<Value> Interpreter::EvaluateElement(const Expression& node) {
  NEREID_ASSIGN_OR_RETURN(const Value object, Evaluate(*node.children[0]));
  const Expression& index = *node.children[1];
  if (index.kind != ExpressionKind::kSlice) {
    NEREID_ASSIGN_OR_RETURN(const Value key, Evaluate(index));
    return Element(object, key);
  }
  std::optional<int64_t> parts[3];
  for (size_t i = 0; i < 3; ++i) {
    if (index.children[i] == nullptr) continue;
    NEREID_ASSIGN_OR_RETURN(const Value part, Evaluate(*index.children[i]));
    if (part.is_none()) continue;
    if (!part.is_integer()) {
      return InvalidArgError("slice indices must be integers, got ", part.TypeName());
    }
    parts[i] = part.AsInteger();
  }
  return Slice(*this, object, parts[0], parts[1], parts[2]);
}

Result<Arguments> Interpreter::EvaluateArguments(const Expression& node) {
  Arguments arguments;
  NEREID_ASSIGN_OR_RETURN(arguments.positional, EvaluateAll(node.positional));
  for (const auto& [name, expression] : node.named) {
    NEREID_ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (node.extra_positional != nullptr) {
    NEREID_ASSIGN_OR_RETURN(const Value extra, Evaluate(*node.extra_positional));
    NEREID_ASSIGN_OR_RETURN(const std::vector<Value> values, Elements(extra));
    arguments.positional.insert(arguments.positional.end(), values.begin(), values.end());
  }
  if (node.extra_named != nullptr) {
    NEREID_ASSIGN_OR_RETURN(const Value extra, Evaluate(*node.extra_named));
    if (!extra.is_dict()) {
      return InvalidArgError("argument after ** must be a mapping, not ", extra.TypeName());
    }
    for (const auto& [key, value] : extra.AsDict().items()) {
      arguments.named.emplace_back(ToText(key).bytes(), value);
    }
  }
  return arguments;
}

Result<Value> Interpreter::EvaluateCall(const Expression& node) {
  NEREID_ASSIGN_OR_RETURN(const Value callee, Evaluate(*node.children[0]));
  NEREID_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(node));
  return Call(callee, std::move(arguments));
}

Result<Value> Interpreter::EvaluateFilterChain(const Expression& node, Value input) {
  // The innermost filter has no input of its own.
  if (node.children[0] != nullptr) {
    NEREID_ASSIGN_OR_RETURN(input, EvaluateFilterChain(*node.children[0], std::move(input)));
  }
  return EvaluateFilter(node, std::move(input));
}

Result<Value> Interpreter::EvaluateFilter(const Expression& node, Value input) {
  NEREID_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(node));
  return ApplyFilter(node.name, std::move(input), std::move(arguments));
}

Result<Value> Interpreter::EvaluateTest(const Expression& node) {
  NEREID_ASSIGN_OR_RETURN(const Value input, Evaluate(*node.children[0]));
  NEREID_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(node));
  NEREID_ASSIGN_OR_RETURN(const bool holds, ApplyTest(node.name, input, std::move(arguments)));
  return Value(holds);
}

}  // namespace nereid::tokenizer::jinja
