// See interpreter.h.
#include "backends/tokenizer/lib/chat/jinja/interpreter.h"

#include <algorithm>
#include <optional>

#include "backends/tokenizer/lib/chat/jinja/builtins.h"
#include "backends/tokenizer/lib/chat/jinja/objects.h"
#include "backends/tokenizer/lib/chat/jinja/operators.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer::jinja {
namespace {

// What a step and a value cost, as bytes of Charge.
constexpr size_t kValueBytes = 64;

// The tree that a value's attribute is missed in, as Python names it in messages.
std::string ObjectName(const Value& object) {
  return object.is_none() ? "None" : object.TypeName() + " object";
}

}  // namespace

const Value* Scope::Find(std::string_view name) const {
  for (const auto& [variable, value] : variables_) {
    if (variable == name) return &value;
  }
  return nullptr;
}

void Scope::Set(std::string_view name, Value value) {
  for (auto& [variable, old] : variables_) {
    if (variable == name) {
      old = std::move(value);
      return;
    }
  }
  variables_.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(const Dict& context, const RenderLimits& limits, const std::tm& now)
    : context_(context), limits_(limits), now_(now), scope_(std::make_shared<Scope>(nullptr)) {}

Interpreter::~Interpreter() {
  for (const auto& macro : macros_) macro->Clear();
  for (const auto& attributes : namespaces_) attributes->Clear();
}

Status Interpreter::CheckDepth() const {
  if (depth_ <= limits_.max_depth) return {};
  return InvalidArgError("calls are nested deeper than the limit of ", limits_.max_depth, " steps");
}

Status Interpreter::Charge(size_t num_bytes) {
  charged_bytes_ += num_bytes;
  if (charged_bytes_ <= limits_.max_bytes) return {};
  return InvalidArgError("rendering exceeds the limit of ", limits_.max_bytes, " bytes of work");
}

Result<MarkedText> Interpreter::Run(const Block& block) {
  MarkedText out;
  out_ = &out;
  NEREID_ASSIGN_OR_RETURN(const Flow flow, RunBlock(block));
  static_cast<void>(flow);
  return out;
}

// --- Values ---

Result<Value> Interpreter::MakeList(std::vector<Value> items, ListForm form) {
  NEREID_RETURN_IF_ERROR(Charge(kValueBytes * (items.size() + 1)));
  List list(std::move(items), form);
  if (list.depth() > kMaxValueDepth) {
    return InvalidArgError("a list is nested deeper than the limit of ", kMaxValueDepth);
  }
  return Value(std::move(list));
}

Result<Value> Interpreter::MakeDict(Dict dict) {
  NEREID_RETURN_IF_ERROR(Charge(2 * kValueBytes * (dict.size() + 1)));
  if (dict.depth() > kMaxValueDepth) {
    return InvalidArgError("a dictionary is nested deeper than the limit of ", kMaxValueDepth);
  }
  return Value(std::move(dict));
}

Result<Value> Interpreter::MakeText(MarkedText text, bool is_markup) {
  if (text.size() > limits_.max_output_bytes) {
    return InvalidArgError("a text of ", text.size(), " bytes exceeds the limit of ",
                           limits_.max_output_bytes);
  }
  NEREID_RETURN_IF_ERROR(
      Charge(kValueBytes + text.size() + sizeof(ByteRange) * text.input_ranges().size()));
  return Value(std::move(text), is_markup);
}

Value Interpreter::MakeNamespace(Dict attributes) {
  namespaces_.push_back(std::make_shared<NamespaceObject>(std::move(attributes)));
  return Value(std::shared_ptr<Object>(namespaces_.back()));
}

Result<std::vector<Value>> Interpreter::Elements(const Value& value) {
  std::vector<Value> elements;
  switch (value.kind()) {
    case Kind::kUndefined:
      return elements;
    case Kind::kList:
      NEREID_RETURN_IF_ERROR(Charge(kValueBytes * value.AsList().size()));
      return value.AsList().items();
    case Kind::kDict:
      NEREID_RETURN_IF_ERROR(Charge(kValueBytes * value.AsDict().size()));
      for (const auto& [key, item] : value.AsDict().items()) elements.push_back(key);
      return elements;
    case Kind::kText: {
      const MarkedText& text = value.AsText();
      NEREID_RETURN_IF_ERROR(Charge(2 * kValueBytes * text.size()));
      for (size_t at = 0; at < text.size();) {
        const size_t end = at + CharAt(text.bytes(), at).size;
        elements.emplace_back(text.Slice(at, end));
        at = end;
      }
      return elements;
    }
    case Kind::kObject:
      if (auto items = value.AsObject().Elements()) return std::move(*items);
      break;
    default:
      break;
  }
  return InvalidArgError("'", value.TypeName(), "' object is not iterable");
}

Result<Value> Interpreter::Attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) return InvalidArgError(object.undefined_message());
  if (name.substr(0, 2) == "__" || (!name.empty() && name[0] == '_' && !object.is_dict())) {
    return Value::Undefined(
        StrCat("access to attribute '", name, "' of '", object.TypeName(), "' object is unsafe."));
  }
  NEREID_ASSIGN_OR_RETURN(std::optional<Value> method, FindMethod(object, name));
  if (method.has_value()) return std::move(*method);
  if (object.is_dict()) {
    if (const Value* const found = object.AsDict().Find(name)) return *found;
  }
  return Value::Undefined(StrCat("'", ObjectName(object), "' has no attribute '", name, "'"));
}

Result<Value> Interpreter::Element(const Value& object, const Value& key) {
  if (object.is_undefined()) return InvalidArgError(object.undefined_message());
  if (object.is_dict() && IsHashable(key)) {
    if (const Value* const found = object.AsDict().Find(key)) return *found;
  }
  const bool has_index = key.is_integer();
  if (has_index && object.is_list() && object.AsList().form() != ListForm::kIterator) {
    const auto size = static_cast<int64_t>(object.AsList().size());
    const int64_t index = key.AsInteger() < 0 ? key.AsInteger() + size : key.AsInteger();
    if (index >= 0 && index < size) return object.AsList().items()[static_cast<size_t>(index)];
  }
  if (has_index && object.is_text()) {
    const MarkedText& text = object.AsText();
    NEREID_RETURN_IF_ERROR(Charge(text.size()));
    const auto size = static_cast<int64_t>(CountChars(text.bytes()));
    const int64_t index = key.AsInteger() < 0 ? key.AsInteger() + size : key.AsInteger();
    if (index >= 0 && index < size) {
      const size_t at = ByteOffset(text.bytes(), static_cast<size_t>(index));
      return MakeText(text.Slice(at, at + CharAt(text.bytes(), at).size));
    }
  }
  if (key.is_text()) {
    const std::string& name = key.AsText().bytes();
    if (!name.empty() && name[0] != '_') {
      NEREID_ASSIGN_OR_RETURN(std::optional<Value> method, FindMethod(object, name));
      if (method.has_value()) return std::move(*method);
    }
    return Value::Undefined(StrCat("'", ObjectName(object), "' has no attribute '", name, "'"));
  }
  MarkedText repr;
  AppendRepr(key, repr);
  return Value::Undefined(StrCat(ObjectName(object), " has no element ", repr.bytes()));
}

Result<Value> Interpreter::Call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) return InvalidArgError(callee.undefined_message());
  if (!callee.is_object() || !callee.AsObject().is_callable()) {
    return InvalidArgError("'", callee.TypeName(), "' object is not callable");
  }
  const Nesting nesting(*this);
  NEREID_RETURN_IF_ERROR(CheckDepth());
  const std::shared_ptr<Object> keep_alive = callee.object();
  return keep_alive->Call(*this, std::move(arguments));
}

Result<Value> Interpreter::ApplyFilter(std::string_view name, Value input, Arguments arguments) {
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) return InvalidArgError("no filter named '", name, "'");
  return filter(*this, input, arguments);
}

Result<bool> Interpreter::ApplyTest(std::string_view name, const Value& input,
                                    Arguments arguments) {
  const TestFunction test = FindTest(name);
  if (test == nullptr) return InvalidArgError("no test named '", name, "'");
  return test(*this, input, arguments);
}

const Value* Interpreter::FindVariable(std::string_view name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    if (const Value* const found = scope->Find(name)) return found;
  }
  if (const Value* const found = context_.Find(name)) return found;
  return FindFunction(name);
}

// --- Statements ---

Result<Interpreter::Flow> Interpreter::RunBlock(const Block& block) {
  const Nesting nesting(*this);
  NEREID_RETURN_IF_ERROR(CheckDepth());
  for (const Statement& statement : block) {
    Result<Flow> flow = RunStatement(statement);
    if (!flow.ok()) {
      if (flow.status().message().rfind("line ", 0) == 0) return flow;
      return std::move(flow).status().WithContext(StrCat("line ", statement.line));
    }
    if (*flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::RunStatement(const Statement& statement) {
  if (++num_steps_ > limits_.max_steps) {
    return InvalidArgError("rendering exceeds the limit of ", limits_.max_steps, " steps");
  }
  Status status;
  switch (statement.kind) {
    case StatementKind::kData:
      status = Charge(statement.text.size());
      out_->Append(statement.text);
      break;
    case StatementKind::kOutput:
      status = RunOutput(statement);
      break;
    case StatementKind::kSet:
    case StatementKind::kSetBlock:
      status = RunSet(statement);
      break;
    case StatementKind::kFor:
      status = RunFor(statement);
      break;
    case StatementKind::kIf:
      return RunIf(statement);
    case StatementKind::kMacro:
      scope_->Set(statement.text, MakeMacro(statement, statement.text));
      break;
    case StatementKind::kCall:
      status = RunCallBlock(statement);
      break;
    case StatementKind::kFilter: {
      NEREID_ASSIGN_OR_RETURN(MarkedText body, Capture(statement.body));
      NEREID_ASSIGN_OR_RETURN(const Value value,
                              EvaluateFilterChain(*statement.filter, Value(std::move(body))));
      out_->Append(ToText(value));
      break;
    }
    case StatementKind::kWith:
    case StatementKind::kScope:
      return RunWith(statement);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  if (!status.ok()) return status;
  if (out_->size() > limits_.max_output_bytes) {
    return InvalidArgError("the output exceeds the limit of ", limits_.max_output_bytes, " bytes");
  }
  return Flow::kNext;
}

Status Interpreter::RunOutput(const Statement& statement) {
  for (const ExpressionPtr& expression : statement.expressions) {
    NEREID_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression));
    const MarkedText text = ToText(value);
    NEREID_RETURN_IF_ERROR(Charge(text.size()));
    out_->Append(text);
  }
  return {};
}

Status Interpreter::RunSet(const Statement& statement) {
  if (statement.kind == StatementKind::kSet) {
    NEREID_ASSIGN_OR_RETURN(Value value, Evaluate(*statement.value));
    return Assign(*statement.target, std::move(value));
  }
  NEREID_ASSIGN_OR_RETURN(MarkedText body, Capture(statement.body));
  Value value{std::move(body)};
  if (statement.filter != nullptr) {
    NEREID_ASSIGN_OR_RETURN(value, EvaluateFilterChain(*statement.filter, std::move(value)));
  }
  return Assign(*statement.target, std::move(value));
}

Status Interpreter::Assign(const Expression& target, Value value) {
  if (target.kind == ExpressionKind::kName) {
    scope_->Set(target.name, std::move(value));
    return {};
  }
  if (target.kind == ExpressionKind::kTuple) return AssignTuple(target, value);
  const Value* const object = FindVariable(target.name);
  const auto attributes = object == nullptr || !object->is_object()
                              ? nullptr
                              : std::dynamic_pointer_cast<NamespaceObject>(object->object());
  if (attributes == nullptr) {
    return InvalidArgError("cannot assign attribute on non-namespace object '", target.name, "'");
  }
  NEREID_RETURN_IF_ERROR(Charge(kValueBytes));
  attributes->Set(target.attribute, std::move(value));
  return {};
}

Status Interpreter::AssignTuple(const Expression& target, const Value& value) {
  NEREID_ASSIGN_OR_RETURN(std::vector<Value> elements, Elements(value));
  if (elements.size() != target.children.size()) {
    return InvalidArgError("cannot assign ", elements.size(), " values to ", target.children.size(),
                           " names");
  }
  for (size_t i = 0; i < elements.size(); ++i) {
    NEREID_RETURN_IF_ERROR(Assign(*target.children[i], std::move(elements[i])));
  }
  return {};
}

Status Interpreter::RunFor(const Statement& statement) {
  NEREID_ASSIGN_OR_RETURN(const Value iterable, Evaluate(*statement.value));
  return RunForOver(statement, iterable, 0);
}

Result<std::vector<Value>> Interpreter::SelectElements(const Statement& loop,
                                                       std::vector<Value> elements) {
  if (loop.condition == nullptr) return elements;
  std::vector<Value> selected;
  const std::shared_ptr<Scope> outer = scope_;
  for (Value& element : elements) {
    scope_ = std::make_shared<Scope>(outer);
    Status status = Assign(*loop.target, element);
    Result<Value> is_selected = status.ok() ? Evaluate(*loop.condition) : Result<Value>(status);
    scope_ = outer;
    if (!is_selected.ok()) return std::move(is_selected).status();
    if (IsTrue(*is_selected)) selected.push_back(std::move(element));
  }
  return selected;
}

Status Interpreter::RunForOver(const Statement& statement, const Value& iterable, int depth) {
  NEREID_ASSIGN_OR_RETURN(std::vector<Value> elements, Elements(iterable));
  NEREID_ASSIGN_OR_RETURN(elements, SelectElements(statement, std::move(elements)));
  const std::shared_ptr<Scope> outer = scope_;
  const auto loop = std::make_shared<LoopObject>(statement, outer, elements, depth);
  // Jinja's rule of `else`: no iteration reached the end of the body.
  bool has_completed = false;
  Status status;
  for (size_t i = 0; i < elements.size() && status.ok(); ++i) {
    loop->MoveTo(i);
    scope_ = std::make_shared<Scope>(outer);
    scope_->Set("loop", Value(std::shared_ptr<Object>(loop)));
    status = Assign(*statement.target, elements[i]);
    if (!status.ok()) break;
    Result<Flow> flow = RunBlock(statement.body);
    status = flow.status();
    if (!flow.ok() || *flow == Flow::kBreak) break;
    has_completed = has_completed || *flow == Flow::kNext;
  }
  if (status.ok() && !has_completed) {
    scope_ = std::make_shared<Scope>(outer);
    status = RunBlock(statement.else_body).status();
  }
  scope_ = outer;
  loop->End();
  return status;
}

Result<Value> Interpreter::RunLoop(const Statement& loop, const std::shared_ptr<Scope>& scope,
                                   const Value& iterable, int depth) {
  MarkedText text;
  MarkedText* const out = std::exchange(out_, &text);
  std::shared_ptr<Scope> caller = std::exchange(scope_, scope);
  const Status status = RunForOver(loop, iterable, depth);
  scope_ = std::move(caller);
  out_ = out;
  if (!status.ok()) return status;
  return MakeText(std::move(text));
}

Result<Interpreter::Flow> Interpreter::RunIf(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    NEREID_ASSIGN_OR_RETURN(const Value value, Evaluate(*condition));
    if (IsTrue(value)) return RunBlock(body);
  }
  return RunBlock(statement.else_body);
}

Value Interpreter::MakeMacro(const Statement& statement, std::string name) {
  macros_.push_back(std::make_shared<MacroObject>(statement, std::move(name), scope_));
  return Value(std::shared_ptr<Object>(macros_.back()));
}

Status Interpreter::RunCallBlock(const Statement& statement) {
  NEREID_RETURN_IF_ERROR(Charge(kValueBytes));
  NEREID_ASSIGN_OR_RETURN(const Value callee, Evaluate(*statement.value->children[0]));
  NEREID_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(*statement.value));
  arguments.named.emplace_back("caller", MakeMacro(statement, "caller"));
  NEREID_ASSIGN_OR_RETURN(const Value value, Call(callee, std::move(arguments)));
  out_->Append(ToText(value));
  return {};
}

Result<Interpreter::Flow> Interpreter::RunWith(const Statement& statement) {
  const std::shared_ptr<Scope> outer = scope_;
  const auto inner = std::make_shared<Scope>(outer);
  for (const auto& [target, expression] : statement.assignments) {
    NEREID_ASSIGN_OR_RETURN(Value value, Evaluate(*expression));  // in the outer scope
    scope_ = inner;
    const Status status = Assign(*target, std::move(value));
    scope_ = outer;
    NEREID_RETURN_IF_ERROR(status);
  }
  scope_ = inner;
  Result<Flow> flow = RunBlock(statement.body);
  scope_ = outer;
  return flow;
}

Result<MarkedText> Interpreter::Capture(const Block& block) {
  MarkedText text;
  MarkedText* const out = std::exchange(out_, &text);
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(outer);
  const Result<Flow> flow = RunBlock(block);
  scope_ = outer;
  out_ = out;
  if (!flow.ok()) return flow.status();
  return text;
}

Result<Value> Interpreter::RunMacro(const MacroObject& macro, Arguments arguments) {
  const Statement& statement = macro.statement();
  const std::vector<Parameter>& parameters = statement.parameters;
  const auto scope = std::make_shared<Scope>(macro.scope());
  auto& named = arguments.named;
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto found = std::find_if(named.begin(), named.end(),
                                    [&](const auto& item) { return item.first == name; });
    if (found == named.end()) return std::nullopt;
    Value value = std::move(found->second);
    named.erase(found);
    return value;
  };
  std::vector<const Parameter*> missing;
  for (size_t i = 0; i < parameters.size(); ++i) {
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = std::move(arguments.positional[i]);
    } else {
      value = take_named(parameters[i].name);
    }
    if (!value.has_value()) {
      missing.push_back(&parameters[i]);
      value = Value::Undefined(StrCat("parameter '", parameters[i].name, "' was not provided"));
    }
    scope->Set(parameters[i].name, std::move(*value));
  }
  std::vector<Value> rest;
  if (arguments.positional.size() > parameters.size()) {
    rest.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(parameters.size()),
                arguments.positional.end());
  }
  if (std::none_of(parameters.begin(), parameters.end(),
                   [](const Parameter& parameter) { return parameter.name == "caller"; })) {
    scope->Set("caller", take_named("caller").value_or(Value::Undefined("No caller defined")));
  }
  scope->Set("varargs", Value(List(std::move(rest), ListForm::kTuple)));
  Dict named_rest;
  for (auto& [name, value] : named) named_rest.Set(Value(name), std::move(value));
  scope->Set("kwargs", Value(std::move(named_rest)));

  MarkedText text;
  MarkedText* const out = std::exchange(out_, &text);
  std::shared_ptr<Scope> caller = std::exchange(scope_, scope);
  Status status;
  for (const Parameter* parameter : missing) {
    if (parameter->default_value == nullptr || !status.ok()) continue;
    Result<Value> value = Evaluate(*parameter->default_value);
    status = value.status();
    if (value.ok()) scope->Set(parameter->name, std::move(value).value());
  }
  if (status.ok()) status = RunBlock(statement.body).status();
  scope_ = std::move(caller);
  out_ = out;
  if (!status.ok()) return status;
  return MakeText(std::move(text));
}

}  // namespace nereid::tokenizer::jinja
