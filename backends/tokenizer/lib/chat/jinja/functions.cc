// The global functions of the template language, and the arguments of calls. See builtins.h.
#include <algorithm>
#include <array>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "backends/tokenizer/lib/chat/jinja/builtins.h"

namespace nereid::tokenizer::jinja {
namespace {

// The number of elements that the sandbox allows.
constexpr int64_t kMaxRange = 100'000;

Result<Value> Range(Interpreter& interpreter, const Value&, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("range", arguments, {"start", "stop", "step"}, 1));
  std::array<int64_t, 3> numbers = {0, 0, 1};
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!bound[i].has_value()) continue;
    if (!bound[i]->is_integer()) {
      return InvalidArgError("range(): expected an integer, got ", bound[i]->TypeName());
    }
    numbers[i] = bound[i]->AsInteger();
  }
  auto [begin, end, step] = numbers;
  if (!bound[1].has_value()) std::swap(begin, end);
  if (step == 0) return InvalidArgError("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      return InvalidArgError("range(): more than ", kMaxRange, " elements");
    }
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return interpreter.MakeList(std::move(items));
}

// The attributes that namespace() and dict() get: those of dictionaries, then the named ones.
Result<Dict> MergedDict(Arguments& arguments) {
  Dict merged;
  for (const Value& value : arguments.positional) {
    if (!value.is_dict()) return InvalidArgError("expected a dict, got ", value.TypeName());
    for (const auto& [key, item] : value.AsDict().items()) merged.Set(key, item);
  }
  for (auto& [name, value] : arguments.named) merged.Set(Value(name), std::move(value));
  return merged;
}

Result<Value> MakeNamespace(Interpreter& interpreter, const Value&, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(Dict attributes, MergedDict(arguments));
  NEREID_RETURN_IF_ERROR(interpreter.Charge(256 + 128 * attributes.size()));
  return interpreter.MakeNamespace(std::move(attributes));
}

Result<Value> MakeDict(Interpreter& interpreter, const Value&, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(Dict dict, MergedDict(arguments));
  return interpreter.MakeDict(std::move(dict));
}

// joiner(separator): empty at its first call, then the separator.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string TypeName() const override { return "Joiner"; }
  bool is_callable() const override { return true; }
  Result<Value> Call(Interpreter&, Arguments) override {
    return std::exchange(is_used_, true) ? separator_ : Value("");
  }

 private:
  const Value separator_;
  bool is_used_ = false;
};

Result<Value> MakeJoiner(Interpreter& interpreter, const Value&, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound, Bind("joiner", arguments, {"sep"}));
  NEREID_RETURN_IF_ERROR(interpreter.Charge(128));
  return Value(std::shared_ptr<Object>(std::make_shared<Joiner>(bound[0].value_or(Value(", ")))));
}

Result<Value> RaiseException(Interpreter&, const Value&, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("raise_exception", arguments, {"message"}, 1));
  return InvalidArgError(ToText(*bound[0]).bytes());
}

Result<Value> StrftimeNow(Interpreter& interpreter, const Value&, Arguments& arguments) {
  NEREID_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind("strftime_now", arguments, {"format"}, 1));
  const std::string format = ToText(*bound[0]).bytes();
  if (format.size() > 1000) {
    return InvalidArgError("strftime_now(): a format of ", format.size(), " bytes exceeds 1000");
  }
  if (format.empty()) return Value("");
  std::string buffer(64 * 1024, '\0');
  const std::tm now = interpreter.now();
  buffer.resize(std::strftime(buffer.data(), buffer.size(), format.c_str(), &now));
  return interpreter.MakeText(MarkedText(std::move(buffer)));
}

Value Function(std::string_view name, FunctionObject::Body body) {
  return Value(std::shared_ptr<Object>(std::make_shared<FunctionObject>(name, body)));
}

std::string Quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

}  // namespace

const Value* FindFunction(std::string_view name) {
  static const std::map<std::string_view, Value, std::less<>> kFunctions = {
      {"dict", Function("dict", MakeDict)},
      {"joiner", Function("joiner", MakeJoiner)},
      {"namespace", Function("namespace", MakeNamespace)},
      {"raise_exception", Function("raise_exception", RaiseException)},
      {"range", Function("range", Range)},
      {"strftime_now", Function("strftime_now", StrftimeNow)},
  };
  const auto found = kFunctions.find(name);
  return found == kFunctions.end() ? nullptr : &found->second;
}

Result<BoundArguments> Bind(std::string_view function, Arguments& arguments,
                            std::initializer_list<std::string_view> names, size_t num_required) {
  if (arguments.positional.size() > names.size()) {
    return InvalidArgError(function, ": expected at most ", names.size(), " arguments, got ",
                           arguments.positional.size());
  }
  BoundArguments bound(names.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      return InvalidArgError(function, ": unexpected argument ", Quoted(name));
    }
    std::optional<Value>& slot = bound[static_cast<size_t>(found - names.begin())];
    if (slot.has_value()) return InvalidArgError(function, ": argument ", Quoted(name), " twice");
    slot = value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (!bound[i].has_value()) {
      return InvalidArgError(function, ": argument ", Quoted(*(names.begin() + i)), " is missing");
    }
  }
  return bound;
}

Result<int64_t> IntegerOf(std::string_view function, const std::optional<Value>& argument,
                          int64_t fallback) {
  if (!argument.has_value() || argument->is_none()) return fallback;
  if (argument->is_integer()) return argument->AsInteger();
  return InvalidArgError(function, ": expected an integer, got ", argument->TypeName());
}

MarkedText TextOf(const std::optional<Value>& argument, std::string_view fallback) {
  return argument.has_value() ? ToText(*argument) : MarkedText(std::string(fallback));
}

bool BoolOf(const std::optional<Value>& argument, bool fallback) {
  return argument.has_value() ? IsTrue(*argument) : fallback;
}

}  // namespace nereid::tokenizer::jinja
