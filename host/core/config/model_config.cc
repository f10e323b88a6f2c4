#include "host/core/config/model_config.h"

namespace nereid {
namespace {

const TensorSpec* Find(const std::vector<TensorSpec>& tensors, std::string_view name) {
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace

const TensorSpec* ModelConfig::FindInput(std::string_view tensor) const {
  return Find(inputs, tensor);
}

const TensorSpec* ModelConfig::FindOutput(std::string_view tensor) const {
  return Find(outputs, tensor);
}

}  // namespace nereid
