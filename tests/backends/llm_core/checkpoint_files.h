// Creates small checkpoint files for tests: a safetensors writer and a temporary folder.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
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

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nereid-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace nereid::llm::testing
