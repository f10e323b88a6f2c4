// Runs the syntax tree of a template. One object renders once. [one thread]
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/tokenizer/lib/chat/jinja/ast.h"
#include "backends/tokenizer/lib/chat/jinja/template.h"
#include "backends/tokenizer/lib/chat/jinja/value.h"

namespace nereid::tokenizer::jinja {

// The variables of a block that has names of its own: a loop's body, a macro, `with`.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : outer(std::move(outer)) {}
  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);

  std::shared_ptr<Scope> outer;  // null: the template's own scope

 private:
  std::vector<std::pair<std::string, Value>> variables_;
};

class LoopObject;
class MacroObject;
class NamespaceObject;

class Interpreter {
 public:
  // All are borrowed until the end of Run.
  Interpreter(const Dict& context, const RenderLimits& limits, const std::tm& now);
  ~Interpreter();

  Result<MarkedText> Run(const Block& block);

  // What filters, tests, methods and functions use.

  // Counts work and memory: `num_bytes` are copied or allocated. INVALID_ARG beyond the limits.
  Status Charge(size_t num_bytes);
  const std::tm& now() const { return now_; }
  const RenderLimits& limits() const { return limits_; }
  Result<Value> Call(const Value& callee, Arguments arguments);
  Result<Value> ApplyFilter(std::string_view name, Value input, Arguments arguments);
  Result<bool> ApplyTest(std::string_view name, const Value& input, Arguments arguments);
  // object.name and object[key], with Python's and the template language's rules of what is tried.
  Result<Value> Attribute(const Value& object, std::string_view name);
  Result<Value> Element(const Value& object, const Value& key);
  // The elements that a loop over `value` visits. INVALID_ARG if it cannot be iterated.
  Result<std::vector<Value>> Elements(const Value& value);
  // Makes a list or dictionary, if it is not nested too deep.
  Result<Value> MakeList(std::vector<Value> items, ListForm form = ListForm::kList);
  Result<Value> MakeDict(Dict dict);
  Result<Value> MakeText(MarkedText text, bool is_markup = false);
  Value MakeNamespace(Dict attributes);

  // What macros and loops use.

  // Runs a macro's body with these parameters and returns what it writes.
  Result<Value> RunMacro(const MacroObject& macro, Arguments arguments);
  // Runs the body of a recursive loop for another list.
  Result<Value> RunLoop(const Statement& loop, const std::shared_ptr<Scope>& scope,
                        const Value& iterable, int depth);

 private:
  // What ends a block early.
  enum class Flow { kNext, kBreak, kContinue };
  // Counts the nesting of the function that creates it.
  class Nesting {
   public:
    explicit Nesting(Interpreter& interpreter) : interpreter_(interpreter) {
      ++interpreter_.depth_;
    }
    ~Nesting() { --interpreter_.depth_; }

   private:
    Interpreter& interpreter_;
  };

  Status CheckDepth() const;
  const Value* FindVariable(std::string_view name) const;

  Result<Flow> RunBlock(const Block& block);
  Result<Flow> RunStatement(const Statement& statement);
  Status RunOutput(const Statement& statement);
  Status RunSet(const Statement& statement);
  Status RunFor(const Statement& statement);
  Status RunForOver(const Statement& statement, const Value& iterable, int depth);
  Result<std::vector<Value>> SelectElements(const Statement& loop, std::vector<Value> elements);
  Result<Flow> RunIf(const Statement& statement);
  Status RunCallBlock(const Statement& statement);
  Result<Flow> RunWith(const Statement& statement);
  Value MakeMacro(const Statement& statement, std::string name);
  // Runs `block` in a scope of its own and returns what it writes.
  Result<MarkedText> Capture(const Block& block);

  Status Assign(const Expression& target, Value value);
  Status AssignTuple(const Expression& target, const Value& value);

  Result<Value> Evaluate(const Expression& node);
  Result<Value> EvaluateIn(const Expression& node);
  Result<std::vector<Value>> EvaluateAll(const std::vector<ExpressionPtr>& nodes);
  Result<Value> EvaluateDict(const Expression& node);
  Result<Value> EvaluateConditional(const Expression& node);
  Result<Value> EvaluateCompare(const Expression& node);
  Result<Value> EvaluateConcat(const Expression& node);
  Result<Value> EvaluateElement(const Expression& node);
  Result<Value> EvaluateCall(const Expression& node);
  // Applies the filters of a filter block, or of a set block, to what its body wrote.
  Result<Value> EvaluateFilterChain(const Expression& node, Value input);
  Result<Value> EvaluateFilter(const Expression& node, Value input);
  Result<Value> EvaluateTest(const Expression& node);
  Result<Arguments> EvaluateArguments(const Expression& node);

  const Dict& context_;
  const RenderLimits& limits_;
  const std::tm& now_;
  std::shared_ptr<Scope> scope_;
  MarkedText* out_ = nullptr;
  int depth_ = 0;
  size_t charged_bytes_ = 0;
  size_t num_steps_ = 0;
  // Owned here, so that references among them, which may be circular, end with the rendering.
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  std::vector<std::shared_ptr<MacroObject>> macros_;
};

}  // namespace nereid::tokenizer::jinja
