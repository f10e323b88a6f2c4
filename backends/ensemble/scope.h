// The tensors of one part of a request. The root scope has the tensors that exist once for the
// request. The i-th response of a decoupled step opens the i-th child of the scope in which the
// step runs; if two decoupled steps run in one scope, their i-th responses share a child. A step
// sees the tensors of its own scope and of all scopes above it, so that all children share the
// tensors from before a decoupled step. [guarded by the owner of the Dataflow]
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backends/ensemble/plan.h"
#include "backends/ensemble/tensor.h"
#include "nereid/status.h"

namespace nereid::ensemble {

// The state changes once, from kUnknown to one of the others.
enum class SlotState : uint8_t {
  kUnknown,
  kPresent,
  kAbsent,  // the request or the model left it out
  kEmpty,   // its producer answered without any output, or was skipped for that reason
};

struct TensorSlot {
  SlotState state = SlotState::kUnknown;
  TensorRef tensor;
};

struct Scope {
  Scope(const Plan& plan, Scope* parent, size_t index);

  // The slot of `tensor`, whose depth is at most this scope's, here or in a scope above.
  TensorSlot& FindSlot(const Plan& plan, int tensor);

  Scope* const parent;
  const size_t index;  // among the parent's children: the number of the response that opened it
  const int depth;
  InlineVector<TensorSlot, 4> slots;  // by Plan::slot_of_tensor
  InlineVector<int, 4> unresolved;    // by Plan::slot_of_step: number of inputs in state kUnknown
  std::map<size_t, std::shared_ptr<Scope>> children;  // the unfinished ones, by index
  size_t num_children = 0;                            // opened so far
  int num_open = 0;  // decoupled steps of this depth that may still add children
  // Decoupled steps that ended, with their number of responses.
  std::vector<std::pair<int, size_t>> closed;
  bool sink_ready = false;
  bool done = false;  // its response was sent, or there will be none
  Status error;       // of a step in this scope; no further step starts here
};

inline Scope::Scope(const Plan& plan, Scope* parent_scope, size_t child_index)
    : parent(parent_scope),
      index(child_index),
      depth(parent_scope == nullptr ? 0 : parent_scope->depth + 1) {
  slots.resize(plan.tensors_at[depth].size());
  unresolved.resize(plan.steps_at[depth].size());
  for (const int step : plan.steps_at[depth]) {
    if (step != plan.sink && plan.graph->steps[step].decoupled) ++num_open;
  }
}

inline TensorSlot& Scope::FindSlot(const Plan& plan, int tensor) {
  Scope* scope = this;
  while (scope->depth > plan.graph->tensors[tensor].depth) scope = scope->parent;
  return scope->slots[plan.slot_of_tensor[tensor]];
}

}  // namespace nereid::ensemble
