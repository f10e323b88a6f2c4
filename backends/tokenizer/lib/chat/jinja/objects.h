// Values with behavior that the interpreter itself creates. [one thread]
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/tokenizer/lib/chat/jinja/ast.h"
#include "backends/tokenizer/lib/chat/jinja/interpreter.h"
#include "backends/tokenizer/lib/chat/jinja/value.h"

namespace nereid::tokenizer::jinja {

// namespace(...): the only value whose attributes a template may set.
class NamespaceObject final : public Object {
 public:
  explicit NamespaceObject(Dict attributes) : attributes_(std::move(attributes)) {}
  std::string TypeName() const override { return "Namespace"; }
  std::optional<Value> Attribute(std::string_view name) override {
    const Value* const found = attributes_.Find(name);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  void Set(const std::string& name, Value value) { attributes_.Set(Value(name), std::move(value)); }
  void Clear() { attributes_ = Dict(); }

 private:
  Dict attributes_;
};

// A macro, or the body of a call block as its `caller`.
class MacroObject final : public Object {
 public:
  // `statement` is kMacro or kCall; `scope` is where it was defined.
  MacroObject(const Statement& statement, std::string name, std::shared_ptr<Scope> scope)
      : statement_(statement), name_(std::move(name)), scope_(std::move(scope)) {}
  std::string TypeName() const override { return "Macro"; }
  std::optional<Value> Attribute(std::string_view name) override {
    return name == "name" ? std::optional<Value>(Value(name_)) : std::nullopt;
  }
  bool is_callable() const override { return true; }
  Result<Value> Call(Interpreter& interpreter, Arguments arguments) override {
    return interpreter.RunMacro(*this, std::move(arguments));
  }
  std::string Repr() const override { return "<Macro '" + name_ + "'>"; }

  const Statement& statement() const { return statement_; }
  const std::string& name() const { return name_; }
  const std::shared_ptr<Scope>& scope() const { return scope_; }
  void Clear() { scope_.reset(); }

 private:
  const Statement& statement_;
  const std::string name_;
  std::shared_ptr<Scope> scope_;
};

// A function of the language, or a method bound to a value.
class FunctionObject final : public Object {
 public:
  using Body = Result<Value> (*)(Interpreter& interpreter, const Value& self, Arguments& arguments);
  FunctionObject(std::string_view name, Body body, Value self = {})
      : name_(name), body_(body), self_(std::move(self)) {}
  std::string TypeName() const override { return "builtin_function_or_method"; }
  bool is_callable() const override { return true; }
  Result<Value> Call(Interpreter& interpreter, Arguments arguments) override {
    return body_(interpreter, self_, arguments);
  }
  std::string Repr() const override { return "<function " + std::string(name_) + ">"; }

 private:
  const std::string_view name_;
  const Body body_;
  const Value self_;
};

// The variable `loop` of a for statement.
class LoopObject final : public Object {
 public:
  // `elements` is borrowed for the loop's duration.
  LoopObject(const Statement& statement, std::shared_ptr<Scope> scope,
             const std::vector<Value>& elements, int depth)
      : statement_(statement), scope_(std::move(scope)), elements_(&elements), depth_(depth) {}
  std::string TypeName() const override { return "LoopContext"; }
  std::optional<Value> Attribute(std::string_view name) override;
  bool is_callable() const override { return true; }
  // Renders the loop's body for the elements of the argument.
  Result<Value> Call(Interpreter& interpreter, Arguments arguments) override;

  void MoveTo(size_t index) { index_ = index; }
  // The loop is over: its elements are gone.
  void End();
  Result<Value> Cycle(const Arguments& arguments) const;
  Value IsChanged(Arguments arguments);

 private:
  const Statement& statement_;
  std::shared_ptr<Scope> scope_;  // around the loop
  const std::vector<Value>* elements_;
  const int depth_;
  size_t index_ = 0;
  std::optional<Value> last_changed_;
};

}  // namespace nereid::tokenizer::jinja
