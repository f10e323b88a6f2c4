// The tensors of a step by name. [any thread]
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/ensemble/graph.h"
#include "backends/ensemble/step_models.h"

namespace nereid::bls {

// Null if there is none of this name.
inline const ensemble::Binding* Find(const std::vector<ensemble::Binding>& bindings,
                                     std::string_view name) {
  const auto found = std::find_if(bindings.begin(), bindings.end(),
                                  [&](const auto& binding) { return binding.name == name; });
  return found == bindings.end() ? nullptr : &*found;
}

// The inputs of one call of a step, which are in the order of the step. The step must outlive them.
class NamedInputs {
 public:
  explicit NamedInputs(const ensemble::Step& step) : step_(&step), tensors_(step.inputs.size()) {}
  NamedInputs(const ensemble::Step& step, std::span<const ensemble::TensorRef> tensors)
      : step_(&step), tensors_(tensors.begin(), tensors.end()) {
    tensors_.resize(step.inputs.size());
  }

  ensemble::TensorRef Get(std::string_view name) const {
    const ensemble::Binding* binding = Find(step_->inputs, name);
    return binding == nullptr ? nullptr : tensors_[binding - step_->inputs.data()];
  }
  // Does nothing if the step has no such input.
  void Set(std::string_view name, ensemble::TensorRef tensor) {
    const ensemble::Binding* binding = Find(step_->inputs, name);
    if (binding != nullptr) tensors_[binding - step_->inputs.data()] = std::move(tensor);
  }
  std::span<const ensemble::TensorRef> all() const { return tensors_; }

 private:
  const ensemble::Step* step_;
  std::vector<ensemble::TensorRef> tensors_;
};

}  // namespace nereid::bls
