#include "backends/ensemble/dataflow.h"

#include <algorithm>

namespace nereid::ensemble {

Dataflow::Dataflow(const Plan& plan)
    : plan_(plan),
      graph_(*plan.graph),
      root_(plan, nullptr, 0),
      root_ref_(std::shared_ptr<void>(), &root_) {}

void Dataflow::Begin(std::span<const TensorRef> inputs, Effects& effects) {
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const int slot = plan_.slot_of_tensor[graph_.inputs[i].tensor];
    if (slot < 0) continue;
    root_.slots[slot] = {inputs[i] ? SlotState::kPresent : SlotState::kAbsent, inputs[i]};
  }
  OpenScope(root_ref_, effects);
  Advance(effects);
}

void Dataflow::OnResponse(Execution& execution, std::span<const TensorRef> outputs,
                          Effects& effects) {
  const Step& step = graph_.steps[execution.step];
  if (over_ || execution.ended) return;
  if (!step.decoupled && execution.num_responses > 0) {
    OnError(execution, InternalError("more than one response from a model that is not decoupled"),
            effects);
    return;
  }
  bool fresh = false;
  const std::shared_ptr<Scope> scope = ScopeOfResponse(execution, fresh);
  if (scope == nullptr) return;
  SetOutputs(scope, fresh, step, outputs, effects);
  Advance(effects);
}

void Dataflow::OnError(Execution& execution, Status error, Effects& effects) {
  if (over_ || execution.ended) return;
  bool fresh = false;
  const std::shared_ptr<Scope> scope = ScopeOfResponse(execution, fresh);
  if (scope == nullptr || !scope->error.ok()) return;
  const Step& step = graph_.steps[execution.step];
  scope->error = std::move(error).WithContext(StrCat("in ensemble '", graph_.name, "', step ",
                                                     execution.step, " ('", step.model_name, "')"));
  Advance(effects);
}

void Dataflow::OnEnd(Execution& execution, Effects& effects) {
  if (execution.ended) return;
  execution.ended = true;
  if (over_ || execution.scope->done) return;
  if (graph_.steps[execution.step].decoupled) {
    CloseStep(execution.scope, execution.step, execution.num_responses, effects);
  } else if (execution.num_responses == 0) {
    Skip(execution.scope, execution.step, effects);
  }
  Advance(effects);
}

void Dataflow::Abort() {
  over_ = true;
}

void Dataflow::OpenScope(const std::shared_ptr<Scope>& scope, Effects& effects) {
  const auto is_unknown = [&](int tensor) {
    return scope->Visible(plan_, tensor).state == SlotState::kUnknown ? 1 : 0;
  };
  const std::vector<int>& steps = plan_.steps_at[scope->depth];
  // Counts first, since a step that is skipped resolves its outputs at once.
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int tensor : plan_.needed_by[steps[i]]) scope->unresolved[i] += is_unknown(tensor);
  }
  InlineVector<int, 8> ready;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (scope->unresolved[i] == 0) ready.push_back(steps[i]);
  }
  for (const int step : ready) Ready(scope, step, effects);
}

std::shared_ptr<Scope> Dataflow::ScopeOfResponse(Execution& execution, bool& fresh) {
  const size_t number = execution.num_responses++;
  Scope& scope = *execution.scope;
  if (scope.done) return nullptr;
  if (!graph_.steps[execution.step].decoupled) return execution.scope;
  if (number < scope.num_children) {
    const auto child = scope.children.find(number);
    return child == scope.children.end() ? nullptr : child->second;
  }
  // Responses are numbered without gaps, so the child to add is always the next.
  fresh = true;
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

void Dataflow::SetOutputs(const std::shared_ptr<Scope>& scope, bool fresh, const Step& step,
                          std::span<const TensorRef> outputs, Effects& effects) {
  const bool empty = std::none_of(outputs.begin(), outputs.end(),
                                  [](const TensorRef& tensor) { return tensor != nullptr; });
  const SlotState missing = empty ? SlotState::kEmpty : SlotState::kAbsent;
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    const int tensor = step.outputs[i].tensor;
    if (!plan_.needs_tensor(tensor)) continue;
    Slot slot{outputs[i] ? SlotState::kPresent : missing, outputs[i]};
    if (fresh) {
      scope->slots[plan_.slot_of_tensor[tensor]] = std::move(slot);
    } else {
      Resolve(scope, tensor, std::move(slot), effects);
    }
  }
  if (fresh) OpenScope(scope, effects);
}

void Dataflow::Resolve(const std::shared_ptr<Scope>& scope, int tensor, Slot slot,
                       Effects& effects) {
  Slot& target = scope->slots[plan_.slot_of_tensor[tensor]];
  if (target.state != SlotState::kUnknown) return;
  target = std::move(slot);
  for (const int step : plan_.consumers[tensor]) NotifyConsumer(scope, step, effects);
}

void Dataflow::NotifyConsumer(const std::shared_ptr<Scope>& scope, int step, Effects& effects) {
  if (plan_.depth_of(step) > scope->depth) {
    for (const auto& [index, child] : scope->children) NotifyConsumer(child, step, effects);
  } else if (--scope->unresolved[plan_.slot_of_step[step]] == 0) {
    Ready(scope, step, effects);
  }
}

void Dataflow::Ready(const std::shared_ptr<Scope>& scope, int step, Effects& effects) {
  if (over_ || !scope->error.ok()) return;
  if (step == plan_.sink) {
    scope->sink_ready = true;
  } else {
    LaunchStep(scope, step, effects);
  }
}

void Dataflow::LaunchStep(const std::shared_ptr<Scope>& scope, int index, Effects& effects) {
  const Step& step = graph_.steps[index];
  TensorRefs inputs;
  inputs.resize(step.inputs.size());
  const Binding* absent = nullptr;
  bool bound = false, empty = false, lacks_empty = false;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const Slot& slot = scope->Visible(plan_, step.inputs[i].tensor);
    inputs[i] = slot.tensor;
    bound |= slot.state == SlotState::kPresent;
    empty |= slot.state == SlotState::kEmpty;
    if (step.inputs[i].optional) continue;
    lacks_empty |= slot.state == SlotState::kEmpty;
    if (slot.state == SlotState::kAbsent) absent = &step.inputs[i];
  }
  if (lacks_empty || (empty && !bound)) {
    Skip(scope, index, effects);
  } else if (absent != nullptr) {
    scope->error = MissingInput(step, *absent);
  } else {
    effects.launches.push_back({{.step = index, .scope = scope}, std::move(inputs)});
  }
}

void Dataflow::Skip(const std::shared_ptr<Scope>& scope, int index, Effects& effects) {
  const Step& step = graph_.steps[index];
  if (step.decoupled) {
    CloseStep(scope, index, 0, effects);
    return;
  }
  for (const Binding& output : step.outputs) {
    if (!plan_.needs_tensor(output.tensor)) continue;
    Resolve(scope, output.tensor, {SlotState::kEmpty, nullptr}, effects);
  }
}

void Dataflow::CloseStep(const std::shared_ptr<Scope>& scope, int step, size_t count,
                         Effects& effects) {
  --scope->num_open;
  scope->closed.emplace_back(step, count);
  for (const auto& [index, child] : scope->children) {
    if (index < count) continue;
    for (const Binding& output : graph_.steps[step].outputs) {
      if (!plan_.needs_tensor(output.tensor)) continue;
      Resolve(child, output.tensor, {SlotState::kEmpty, nullptr}, effects);
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

void Dataflow::Advance(Effects& effects) {
  if (over_) return;
  switch (Drain(root_, effects)) {
    case Progress::kBlocked:
      return;
    case Progress::kFailed:
      effects.launches.clear();
      break;
    case Progress::kDone:
      break;
  }
  over_ = true;
  effects.finished = true;
}

Dataflow::Progress Dataflow::Drain(Scope& scope, Effects& effects) {
  if (!scope.error.ok()) {
    effects.error = scope.error;
    return Progress::kFailed;
  }
  if (scope.depth == plan_.leaf_depth) {
    if (!scope.sink_ready) return Progress::kBlocked;
    Emit(scope, effects);
    scope.done = true;
    scope.slots.clear();
    return Progress::kDone;
  }
  while (!scope.children.empty()) {
    const auto first = scope.children.begin();
    const Progress progress = Drain(*first->second, effects);
    if (progress != Progress::kDone) return progress;
    scope.children.erase(first);
  }
  if (scope.num_open > 0) return Progress::kBlocked;
  scope.done = true;
  return Progress::kDone;
}

void Dataflow::Emit(Scope& scope, Effects& effects) {
  Emission emission;
  bool all_empty = true;
  for (const int output : plan_.outputs) {
    const Slot& slot = scope.Visible(plan_, graph_.outputs[output].tensor);
    all_empty &= slot.state == SlotState::kEmpty;
    emission.outputs.push_back(slot.tensor);
  }
  if (all_empty && graph_.decoupled) return;
  effects.emissions.push_back(std::move(emission));
}

}  // namespace nereid::ensemble
