#include "backends/ensemble/dataflow.h"

#include <algorithm>

namespace nereid::ensemble {

Dataflow::Dataflow(const Plan& plan)
    : plan_(plan),
      graph_(*plan.graph),
      root_(plan, nullptr, 0),
      root_ref_(std::shared_ptr<void>(), &root_) {}

void Dataflow::Begin(std::span<const TensorRef> inputs, DataflowActions& actions) {
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const int slot = plan_.slot_of_tensor[graph_.inputs[i].tensor];
    if (slot < 0) continue;
    root_.slots[slot] = {inputs[i] ? SlotState::kPresent : SlotState::kAbsent, inputs[i]};
  }
  OpenScope(root_ref_, actions);
  Advance(actions);
}

void Dataflow::OnResponse(StepExecution& execution, std::span<const TensorRef> outputs,
                          DataflowActions& actions) {
  const Step& step = graph_.steps[execution.step];
  if (over_ || execution.ended) return;
  if (!step.decoupled && execution.num_responses > 0) {
    OnError(execution, InternalError("more than one response from a model that is not decoupled"),
            actions);
    return;
  }
  bool is_new = false;
  const std::shared_ptr<Scope> scope = ScopeOfResponse(execution, is_new);
  if (scope == nullptr) return;
  SetOutputs(scope, is_new, step, outputs, actions);
  Advance(actions);
}

void Dataflow::OnError(StepExecution& execution, Status error, DataflowActions& actions) {
  if (over_ || execution.ended) return;
  bool is_new = false;
  const std::shared_ptr<Scope> scope = ScopeOfResponse(execution, is_new);
  if (scope == nullptr || !scope->error.ok()) return;
  const Step& step = graph_.steps[execution.step];
  scope->error = std::move(error).WithContext(StrCat("in ensemble '", graph_.name, "', step ",
                                                     execution.step, " ('", step.model_name, "')"));
  Advance(actions);
}

void Dataflow::OnEnd(StepExecution& execution, DataflowActions& actions) {
  if (execution.ended) return;
  execution.ended = true;
  if (over_ || execution.scope->done) return;
  if (graph_.steps[execution.step].decoupled) {
    CloseStep(execution.scope, execution.step, execution.num_responses, actions);
  } else if (execution.num_responses == 0) {
    Skip(execution.scope, execution.step, actions);
  }
  Advance(actions);
}

void Dataflow::Abort() {
  over_ = true;
}

void Dataflow::OpenScope(const std::shared_ptr<Scope>& scope, DataflowActions& actions) {
  const auto is_unknown = [&](int tensor) {
    return scope->FindSlot(plan_, tensor).state == SlotState::kUnknown ? 1 : 0;
  };
  const std::vector<int>& steps = plan_.steps_at[scope->depth];
  // All counts are set first, because a skipped step resolves its outputs immediately.
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int tensor : plan_.needed_by[steps[i]]) scope->unresolved[i] += is_unknown(tensor);
  }
  InlineVector<int, 8> ready;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (scope->unresolved[i] == 0) ready.push_back(steps[i]);
  }
  for (const int step : ready) Ready(scope, step, actions);
}

std::shared_ptr<Scope> Dataflow::ScopeOfResponse(StepExecution& execution, bool& is_new) {
  const size_t number = execution.num_responses++;
  Scope& scope = *execution.scope;
  if (scope.done) return nullptr;
  if (!graph_.steps[execution.step].decoupled) return execution.scope;
  if (number < scope.num_children) {
    const auto child = scope.children.find(number);
    return child == scope.children.end() ? nullptr : child->second;
  }
  // Responses are numbered without gaps, so the new child is always the next one.
  is_new = true;
  auto child = std::make_shared<Scope>(plan_, &scope, number);
  scope.children.emplace(number, child);
  ++scope.num_children;
  for (const auto& [step, count] : scope.closed) {
    for (const Binding& output : graph_.steps[step].outputs) {
      if (!plan_.needs_tensor(output.tensor)) continue;
      child->slots[plan_.slot_of_tensor[output.tensor]].state = SlotState::kEmpty;
    }
  }
  return child;
}

void Dataflow::SetOutputs(const std::shared_ptr<Scope>& scope, bool is_new, const Step& step,
                          std::span<const TensorRef> outputs, DataflowActions& actions) {
  const bool empty = std::none_of(outputs.begin(), outputs.end(),
                                  [](const TensorRef& tensor) { return tensor != nullptr; });
  const SlotState missing = empty ? SlotState::kEmpty : SlotState::kAbsent;
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    const int tensor = step.outputs[i].tensor;
    if (!plan_.needs_tensor(tensor)) continue;
    TensorSlot slot{outputs[i] ? SlotState::kPresent : missing, outputs[i]};
    if (is_new) {
      scope->slots[plan_.slot_of_tensor[tensor]] = std::move(slot);
    } else {
      Resolve(scope, tensor, std::move(slot), actions);
    }
  }
  if (is_new) OpenScope(scope, actions);
}

void Dataflow::Resolve(const std::shared_ptr<Scope>& scope, int tensor, TensorSlot slot,
                       DataflowActions& actions) {
  TensorSlot& target = scope->slots[plan_.slot_of_tensor[tensor]];
  if (target.state != SlotState::kUnknown) return;
  target = std::move(slot);
  for (const int step : plan_.consumers[tensor]) NotifyConsumer(scope, step, actions);
}

void Dataflow::NotifyConsumer(const std::shared_ptr<Scope>& scope, int step,
                              DataflowActions& actions) {
  if (plan_.depth_of(step) > scope->depth) {
    for (const auto& [index, child] : scope->children) NotifyConsumer(child, step, actions);
  } else if (--scope->unresolved[plan_.slot_of_step[step]] == 0) {
    Ready(scope, step, actions);
  }
}

void Dataflow::Ready(const std::shared_ptr<Scope>& scope, int step, DataflowActions& actions) {
  if (over_ || !scope->error.ok()) return;
  if (step == plan_.sink) {
    scope->sink_ready = true;
  } else {
    LaunchStep(scope, step, actions);
  }
}

void Dataflow::LaunchStep(const std::shared_ptr<Scope>& scope, int index,
                          DataflowActions& actions) {
  const Step& step = graph_.steps[index];
  TensorRefs inputs;
  inputs.resize(step.inputs.size());
  const Binding* absent = nullptr;
  bool has_present = false, has_empty = false, mandatory_is_empty = false;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const TensorSlot& slot = scope->FindSlot(plan_, step.inputs[i].tensor);
    inputs[i] = slot.tensor;
    has_present |= slot.state == SlotState::kPresent;
    has_empty |= slot.state == SlotState::kEmpty;
    if (step.inputs[i].optional) continue;
    mandatory_is_empty |= slot.state == SlotState::kEmpty;
    if (slot.state == SlotState::kAbsent) absent = &step.inputs[i];
  }
  if (mandatory_is_empty || (has_empty && !has_present)) {
    Skip(scope, index, actions);
  } else if (absent != nullptr) {
    scope->error = MissingInput(step, *absent);
  } else {
    actions.launches.push_back({{.step = index, .scope = scope}, std::move(inputs)});
  }
}

void Dataflow::Skip(const std::shared_ptr<Scope>& scope, int index, DataflowActions& actions) {
  const Step& step = graph_.steps[index];
  if (step.decoupled) {
    CloseStep(scope, index, 0, actions);
    return;
  }
  for (const Binding& output : step.outputs) {
    if (!plan_.needs_tensor(output.tensor)) continue;
    Resolve(scope, output.tensor, {SlotState::kEmpty, nullptr}, actions);
  }
}

void Dataflow::CloseStep(const std::shared_ptr<Scope>& scope, int step, size_t count,
                         DataflowActions& actions) {
  --scope->num_open;
  scope->closed.emplace_back(step, count);
  for (const auto& [index, child] : scope->children) {
    if (index < count) continue;
    for (const Binding& output : graph_.steps[step].outputs) {
      if (!plan_.needs_tensor(output.tensor)) continue;
      Resolve(child, output.tensor, {SlotState::kEmpty, nullptr}, actions);
    }
  }
}

Status Dataflow::MissingInput(const Step& step, const Binding& input) const {
  const GraphTensor& tensor = graph_.tensors[input.tensor];
  const auto index = static_cast<size_t>(&step - graph_.steps.data());
  const std::string context = StrCat("in ensemble '", graph_.name, "', step ", index, " ('",
                                     step.model_name, "') needs input '", input.name, "'");
  if (tensor.producer == kEnsembleInput) {
    return InvalidArgError(context, ", but the request has no input '", tensor.name, "'");
  }
  return InvalidArgError(context, ", but step ", tensor.producer, " ('",
                         graph_.steps[tensor.producer].model_name, "') did not produce tensor '",
                         tensor.name, "'");
}

void Dataflow::Advance(DataflowActions& actions) {
  if (over_) return;
  switch (Drain(root_, actions)) {
    case Progress::kBlocked:
      return;
    case Progress::kFailed:
      actions.launches.clear();
      break;
    case Progress::kDone:
      break;
  }
  over_ = true;
  actions.finished = true;
}

Dataflow::Progress Dataflow::Drain(Scope& scope, DataflowActions& actions) {
  if (!scope.error.ok()) {
    actions.error = scope.error;
    return Progress::kFailed;
  }
  if (scope.depth == plan_.response_depth) {
    if (!scope.sink_ready) return Progress::kBlocked;
    Emit(scope, actions);
    scope.done = true;
    scope.slots.clear();
    return Progress::kDone;
  }
  while (!scope.children.empty()) {
    const auto first = scope.children.begin();
    const Progress progress = Drain(*first->second, actions);
    if (progress != Progress::kDone) return progress;
    scope.children.erase(first);
  }
  if (scope.num_open > 0) return Progress::kBlocked;
  scope.done = true;
  return Progress::kDone;
}

void Dataflow::Emit(Scope& scope, DataflowActions& actions) {
  EnsembleResponse response;
  bool all_empty = true;
  for (const int output : plan_.outputs) {
    const TensorSlot& slot = scope.FindSlot(plan_, graph_.outputs[output].tensor);
    all_empty &= slot.state == SlotState::kEmpty;
    response.outputs.push_back(slot.tensor);
  }
  if (all_empty && graph_.decoupled) return;
  actions.responses.push_back(std::move(response));
}

}  // namespace nereid::ensemble
