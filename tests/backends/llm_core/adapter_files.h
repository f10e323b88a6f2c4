// Writes LoRA adapters in PEFT's format for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/backends/llm_core/checkpoint_files.h"

namespace nereid::llm::testing {

// F32 tensors and their values.
struct FloatTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using FloatTensors = std::map<std::string, FloatTensor>;

inline std::string FloatSafetensors(const FloatTensors& tensors) {
  std::vector<TestTensor> described;
  std::string values;
  for (const auto& [name, tensor] : tensors) {
    described.push_back({name, tensor.shape});
    values.append(reinterpret_cast<const char*>(tensor.values.data()),
                  tensor.values.size() * sizeof(float));
  }
  std::string file = SafetensorsBytes(described);
  std::memcpy(file.data() + file.size() - values.size(), values.data(), values.size());
  return file;
}

// Different small numbers for every seed.
inline FloatTensor MakeTensor(std::vector<int64_t> shape, uint32_t seed, float size = 0.25f) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  FloatTensor tensor{std::move(shape), {}};
  uint32_t state = seed * 2654435761u + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    tensor.values.push_back((static_cast<float>(state >> 8) / (1 << 23) - 1.0f) * size);
  }
  return tensor;
}

// The tensors of one module under PEFT's names.
inline void AddModule(const std::string& module, int64_t rows, int64_t columns, int64_t rank,
                      uint32_t seed, FloatTensors& tensors) {
  const std::string name = "base_model.model." + module;
  tensors[name + ".lora_A.weight"] = MakeTensor({rank, columns}, 2 * seed);
  tensors[name + ".lora_B.weight"] = MakeTensor({rows, rank}, 2 * seed + 1);
}

inline void WriteAdapter(const std::filesystem::path& folder, const std::string& config,
                         const FloatTensors& tensors) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "adapter_config.json", std::ios::binary) << config;
  std::ofstream(folder / "adapter_model.safetensors", std::ios::binary)
      << FloatSafetensors(tensors);
}

}  // namespace nereid::llm::testing
