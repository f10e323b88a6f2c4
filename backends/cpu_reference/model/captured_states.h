// The hidden states that enter chosen layers in a step, for drafters that read them. [engine
// thread]
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace nereid::cpu {

class CapturedStates {
 public:
  explicit CapturedStates(int32_t hidden_size) : hidden_size_(static_cast<size_t>(hidden_size)) {}

  // Chooses the layers, for all later steps.
  void Choose(std::vector<int32_t> layers) { layers_ = std::move(layers); }
  // `residual` [num_tokens, hidden_size] enters `layer`. Keeps it if the layer was chosen.
  void Offer(int32_t layer, const float* residual, int64_t num_tokens) {
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (layers_[i] != layer) continue;
      states_.resize(static_cast<size_t>(num_tokens) * row_size());
      for (size_t token = 0; token < static_cast<size_t>(num_tokens); ++token) {
        std::copy_n(residual + token * hidden_size_, hidden_size_,
                    states_.data() + token * row_size() + i * hidden_size_);
      }
    }
  }
  // The states that the last step kept: [num_tokens, row_size]. A row has those of all chosen
  // layers, one behind the other.
  std::span<const float> states() const { return states_; }
  size_t row_size() const { return layers_.size() * hidden_size_; }

 private:
  const size_t hidden_size_;
  std::vector<int32_t> layers_;
  std::vector<float> states_;
};

}  // namespace nereid::cpu
