// One safetensors file: an 8-byte little-endian header length, a JSON header, then tensor bytes.
// The header is checked in full before any tensor is handed out, so that a hostile file can neither
// make a reader leave the mapping nor alias two tensors. [any thread]
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/llm_core/checkpoint/data_type.h"
#include "backends/llm_core/checkpoint/mapped_file.h"
#include "nereid/status.h"

namespace nereid::llm {

// Borrows the file's mapping: valid while the SafetensorsFile lives.
struct TensorView {
  DataType type = DataType::kF32;
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;  // row-major
};

std::string ShapeText(std::span<const int64_t> shape);

using TensorMap = std::map<std::string, TensorView, std::less<>>;

// Parses and validates `file`, the bytes of a whole file; the views point into it. Checks: header
// length within the file and kMaxHeaderBytes, JSON object, no duplicate names, known dtype, shape
// without overflow, bytes = shape x dtype, ranges inside the data, without overlap and without
// holes. `name` stands in messages.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
Result<TensorMap> ParseSafetensors(std::span<const uint8_t> file, std::string_view name);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> Open(const std::string& path);

  const TensorMap& tensors() const { return tensors_; }
  const MappedFile& file() const { return file_; }

 private:
  SafetensorsFile(MappedFile file, TensorMap tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}

  MappedFile file_;
  TensorMap tensors_;
};

}  // namespace nereid::llm
