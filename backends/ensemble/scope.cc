#include "backends/ensemble/scope.h"

namespace nereid::ensemble {

Scope::Scope(const Plan& plan, Scope* parent_scope, size_t child_index)
    : parent(parent_scope),
      index(child_index),
      depth(parent_scope == nullptr ? 0 : parent_scope->depth + 1) {
  slots.resize(plan.tensors_at[depth].size());
  unresolved.resize(plan.steps_at[depth].size());
  for (const int step : plan.steps_at[depth]) {
    if (step != plan.sink && plan.graph->steps[step].decoupled) ++num_open;
  }
}

Slot& Scope::Visible(const Plan& plan, int tensor) {
  Scope* scope = this;
  while (scope->depth > plan.graph->tensors[tensor].depth) scope = scope->parent;
  return scope->slots[plan.slot_of_tensor[tensor]];
}

}  // namespace nereid::ensemble
