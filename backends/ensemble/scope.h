// Where the tensors of one chain live. The root scope holds what exists once a request; the i-th
// response of a decoupled step opens (or, beside another decoupled step, joins) the i-th child of
// the scope in which it runs. A step sees the tensors of its own scope and of every scope above: so
// what was made before a decoupled step is shared by all its chains. [guarded by the owner of the
// Dataflow]
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

// kUnknown -> one of the others, once.
enum class SlotState : uint8_t {
  kUnknown,
  kPresent,
  kAbsent,  // the request or the model left it out
  kEmpty,   // its producer answered without any output, or did not run for that reason
};

struct Slot {
  SlotState state = SlotState::kUnknown;
  TensorRef tensor;
};

struct Scope {
  Scope(const Plan& plan, Scope* parent, size_t index);

  // The slot of `tensor`, of depth <= this one's, here or above.
  Slot& Visible(const Plan& plan, int tensor);

  Scope* const parent;
  const size_t index;  // among the parent's children: the number of the response that opened it
  const int depth;
  InlineVector<Slot, 4> slots;      // by Plan::slot_of_tensor
  InlineVector<int, 4> unresolved;  // by Plan::slot_of_step: inputs whose fate is not known yet
  std::map<size_t, std::shared_ptr<Scope>> children;  // the unfinished ones, by index
  size_t num_children = 0;                            // opened so far
  int num_open = 0;  // decoupled steps of this depth that may still add children
  std::vector<std::pair<int, size_t>> closed;  // decoupled steps that ended, and after how many
  bool sink_ready = false;
  bool done = false;  // answered, or nothing of it will be
  Status error;       // of a step in this scope; nothing more starts here
};

}  // namespace nereid::ensemble
