// Writes small safetensors files for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace nereid::llm::testing {

struct TestTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "F32";
  size_t element_bytes = 4;
};

inline std::string WithHeader(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(file.data(), &size, 8);
  return file + header + std::string(data_bytes, '\0');
}

// A valid file whose tensors are zero.
inline std::string SafetensorsBytes(const std::vector<TestTensor>& tensors) {
  std::string header = "{";
  size_t offset = 0;
  for (const TestTensor& tensor : tensors) {
    size_t size = tensor.element_bytes;
    std::string shape;
    for (const int64_t dim : tensor.shape) {
      size *= static_cast<size_t>(dim);
      shape += (shape.empty() ? "" : ",") + std::to_string(dim);
    }
    header += std::string(offset == 0 && header == "{" ? "" : ",") + "\"" + tensor.name +
              "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" + shape +
              "],\"data_offsets\":[" + std::to_string(offset) + "," +
              std::to_string(offset + size) + "]}";
    offset += size;
  }
  return WithHeader(header + "}", offset);
}

}  // namespace nereid::llm::testing
