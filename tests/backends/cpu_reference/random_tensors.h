// Tensors of random numbers in memory, for checkpoints of draft heads.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/llm_core/checkpoint/checkpoint.h"

namespace nereid::cpu::testing {

class RandomTensors {
 public:
  explicit RandomTensors(uint32_t seed) : random_(seed) {}

  // Numbers around `mean`.
  void Add(const std::string& name, std::vector<int64_t> shape, float mean = 0.0f) {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    std::vector<float> values(count);
    std::normal_distribution<float> normal(mean, 0.15f);
    for (float& value : values) value = normal(random_);
    Add<float>(name, llm::CheckpointDataType::kF32, std::move(shape), values);
  }
  void AddIds(const std::string& name, std::span<const int64_t> ids) {
    Add<int64_t>(name, llm::CheckpointDataType::kI64, {static_cast<int64_t>(ids.size())}, ids);
  }
  // Valid while the object lives.
  std::shared_ptr<const llm::Checkpoint> Checkpoint(const char* directory,
                                                    const char* config) const {
    return std::make_shared<const llm::Checkpoint>(
        llm::Checkpoint::FromParts(directory, config, "", tensors_));
  }

 private:
  template <typename T>
  void Add(const std::string& name, llm::CheckpointDataType type, std::vector<int64_t> shape,
           std::span<const T> values) {
    std::vector<uint8_t>& bytes = bytes_.emplace_back(values.size_bytes());
    std::memcpy(bytes.data(), values.data(), values.size_bytes());
    tensors_[name] = {type, std::move(shape), bytes};
  }

  std::mt19937 random_;
  std::deque<std::vector<uint8_t>> bytes_;
  llm::TensorMap tensors_;
};

}  // namespace nereid::cpu::testing
