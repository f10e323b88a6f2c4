#include "backends/ensemble/scope.h"

namespace nereid::ensemble {

Scope::Scope(const Plan& plan, Scope* parent_scope, size_t child_index)
    : parent(parent_scope),
      index(child_index),
      depth(parent_scope == nullptr ? 0 : parent_scope->depth + 1),
      slots(plan.tensors_at[depth].size()),
      unresolved(plan.steps_at[depth].size()) {
  for (const int step : plan.steps_at[depth]) {
    if (step != plan.sink && plan.graph->steps[step].decoupled) ++num_open;
  }
}

Slot& Scope::Visible(const Plan& plan, int tensor) {
  Scope* scope = this;
  while (scope->depth > plan.graph->tensors[tensor].depth) scope = scope->parent;
  return scope->slots[plan.slot_of_tensor[tensor]];
}

Scope* Scope::Child(size_t child_index) {
  if (child_index < first_child || child_index - first_child >= children.size()) return nullptr;
  return children[child_index - first_child].get();
}

}  // namespace nereid::ensemble
