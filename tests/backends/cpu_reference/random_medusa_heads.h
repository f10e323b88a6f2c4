// Medusa heads with random weights, in memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/llm_core/checkpoint/checkpoint.h"

namespace nereid::cpu::testing {

// Three heads for a model of hidden size 64 and a vocabulary of 512 tokens. Owns the tensors of its
// checkpoint.
class RandomMedusaHeads {
 public:
  static constexpr int64_t kHidden = 64, kVocabulary = 512;

  explicit RandomMedusaHeads(uint32_t seed) : random_(seed) {
    for (const std::string head : {"0", "1", "2"}) {
      Add(head + ".0.linear.weight", {kHidden, kHidden});
      Add(head + ".0.linear.bias", {kHidden});
      Add(head + ".1.weight", {kVocabulary, kHidden});
    }
  }

  // Valid while the object lives.
  std::shared_ptr<const llm::Checkpoint> checkpoint() const {
    constexpr const char* kConfig = R"({"medusa_num_heads":3,"medusa_num_layers":1})";
    return std::make_shared<const llm::Checkpoint>(
        llm::Checkpoint::FromParts("heads", kConfig, "", tensors_));
  }

 private:
  void Add(const std::string& name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::vector<uint8_t>& bytes = bytes_.emplace_back(4 * count);
    std::normal_distribution<float> normal(0.0f, 0.15f);
    for (int64_t i = 0; i < count; ++i) {
      const float value = normal(random_);
      std::memcpy(bytes.data() + 4 * i, &value, sizeof(value));
    }
    tensors_[name] = {llm::CheckpointDataType::kF32, std::move(shape), bytes};
  }

  std::mt19937 random_;
  std::deque<std::vector<uint8_t>> bytes_;
  llm::TensorMap tensors_;
};

}  // namespace nereid::cpu::testing
