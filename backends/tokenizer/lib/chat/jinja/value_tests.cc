// The tests of the template language: what follows `is`. See builtins.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "backends/tokenizer/lib/chat/jinja/builtins.h"
#include "backends/tokenizer/lib/chat/jinja/operators.h"
#include "backends/tokenizer/lib/chat/jinja/text_methods.h"

namespace nereid::tokenizer::jinja {
namespace {

// A test that only looks at its input.
template <bool (*kHolds)(const Value&)>
Result<bool> Plain(Interpreter&, const Value& input, Arguments&) {
  return kHolds(input);
}

Result<Value> OnlyArgument(std::string_view name, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(BoundArguments bound, Bind(name, arguments, {"other"}, 1));
  return std::move(*bound[0]);
}

template <const char* kOperator>
Result<bool> Comparison(Interpreter& interpreter, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const Value other, OnlyArgument(kOperator, arguments));
  return Compare(interpreter, kOperator, input, other);
}
constexpr char kEqual[] = "==", kUnequal[] = "!=", kLess[] = "<",
               kAtMost[] = "<=", kGreater[] = ">", kAtLeast[] = ">=", kIn[] = "in";

bool IsDefined(const Value& value) {
  return !value.is_undefined();
}
bool IsMissing(const Value& value) {
  return value.is_undefined();
}
bool IsNone(const Value& value) {
  return value.is_none();
}
bool IsBoolean(const Value& value) {
  return value.is_bool();
}
bool IsExactlyTrue(const Value& value) {
  return value.is_bool() && value.AsBool();
}
bool IsExactlyFalse(const Value& value) {
  return value.is_bool() && !value.AsBool();
}
bool IsNumber(const Value& value) {
  return value.is_number();
}
bool IsFloat(const Value& value) {
  return value.kind() == Kind::kFloat;
}
bool IsInteger(const Value& value) {
  return value.kind() == Kind::kInt;
}
bool IsText(const Value& value) {
  return value.is_text();
}
bool IsMapping(const Value& value) {
  return value.is_dict();
}
bool IsCallable(const Value& value) {
  return value.is_undefined() || (value.is_object() && value.AsObject().is_callable());
}
bool IsIterable(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_list() || value.is_dict() ||
         (value.is_object() && value.AsObject().Elements().has_value());
}
// Has a length and elements by index; Python asks for both, so that an undefined value counts.
bool IsSequenceLike(const Value& value) {
  return value.is_undefined() || value.is_text() || value.is_dict() ||
         (value.is_list() && value.AsList().form() != ListForm::kIterator);
}
bool IsEscaped(const Value& value) {
  return value.is_markup();
}
bool IsLower(const Value& value) {
  return IsLowerText(ToText(value).bytes());
}
bool IsUpper(const Value& value) {
  return IsUpperText(ToText(value).bytes());
}

Result<bool> HasRemainder(const Value& input, int64_t divisor, int64_t remainder) {
  if (input.is_undefined()) return InvalidArgError(input.undefined_message());
  if (!input.is_number()) return InvalidArgError("expected a number, got ", input.TypeName());
  if (divisor == 0) return InvalidArgError("division by zero");
  if (!input.is_integer()) {
    const double rest = std::fabs(std::fmod(input.AsDouble(), static_cast<double>(divisor)));
    return rest == static_cast<double>(remainder);
  }
  return divisor == -1 ? remainder == 0 : std::abs(input.AsInteger() % divisor) == remainder;
}
Result<bool> IsEven(Interpreter&, const Value& input, Arguments&) {
  return HasRemainder(input, 2, 0);
}
Result<bool> IsOdd(Interpreter&, const Value& input, Arguments&) {
  return HasRemainder(input, 2, 1);
}
Result<bool> IsDivisible(Interpreter&, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const Value divisor, OnlyArgument("divisibleby", arguments));
  if (!divisor.is_integer()) return InvalidArgError("divisibleby: expected an integer");
  return HasRemainder(input, divisor.AsInteger(), 0);
}

Result<bool> IsSameAs(Interpreter&, const Value& input, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const Value other, OnlyArgument("sameas", arguments));
  if (input.kind() != other.kind()) return false;
  if (input.is_list()) return &input.AsList() == &other.AsList();
  if (input.is_dict()) return &input.AsDict() == &other.AsDict();
  return IsEqual(input, other);
}

Result<bool> IsFilterName(Interpreter&, const Value& input, Arguments&) {
  return input.is_text() && FindFilter(input.AsText().bytes()) != nullptr;
}
Result<bool> IsTestName(Interpreter&, const Value& input, Arguments&) {
  return input.is_text() && FindTest(input.AsText().bytes()) != nullptr;
}

constexpr std::pair<std::string_view, TestFunction> kTests[] = {
    {"boolean", Plain<IsBoolean>},
    {"callable", Plain<IsCallable>},
    {"defined", Plain<IsDefined>},
    {"divisibleby", IsDivisible},
    {"eq", Comparison<kEqual>},
    {"equalto", Comparison<kEqual>},
    {"==", Comparison<kEqual>},
    {"escaped", Plain<IsEscaped>},
    {"even", IsEven},
    {"false", Plain<IsExactlyFalse>},
    {"filter", IsFilterName},
    {"float", Plain<IsFloat>},
    {"ge", Comparison<kAtLeast>},
    {">=", Comparison<kAtLeast>},
    {"gt", Comparison<kGreater>},
    {"greaterthan", Comparison<kGreater>},
    {">", Comparison<kGreater>},
    {"in", Comparison<kIn>},
    {"integer", Plain<IsInteger>},
    {"iterable", Plain<IsIterable>},
    {"le", Comparison<kAtMost>},
    {"<=", Comparison<kAtMost>},
    {"lower", Plain<IsLower>},
    {"lt", Comparison<kLess>},
    {"lessthan", Comparison<kLess>},
    {"<", Comparison<kLess>},
    {"mapping", Plain<IsMapping>},
    {"ne", Comparison<kUnequal>},
    {"!=", Comparison<kUnequal>},
    {"none", Plain<IsNone>},
    {"number", Plain<IsNumber>},
    {"odd", IsOdd},
    {"sameas", IsSameAs},
    {"sequence", Plain<IsSequenceLike>},
    {"string", Plain<IsText>},
    {"test", IsTestName},
    {"true", Plain<IsExactlyTrue>},
    {"undefined", Plain<IsMissing>},
    {"upper", Plain<IsUpper>},
};

}  // namespace

TestFunction FindTest(std::string_view name) {
  const auto found = std::find_if(std::begin(kTests), std::end(kTests),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == std::end(kTests) ? nullptr : found->second;
}

}  // namespace nereid::tokenizer::jinja
