// A safetensors file: an 8-byte little-endian header length, a JSON header, then the tensor bytes.
// The header is validated in full before any tensor is returned. An untrusted file can then neither
// cause reads outside the mapping nor alias two tensors. [any thread]
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/llm_core/checkpoint/checkpoint_data_type.h"
#include "backends/llm_core/checkpoint/mapped_file.h"
#include "nereid/status.h"

namespace nereid::llm {

// A view of a tensor. Borrows the mapping of the file: valid while the SafetensorsFile lives.
struct CheckpointTensor {
  CheckpointDataType type = CheckpointDataType::kF32;
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;  // row-major
};

// For example "[8, 4]".
std::string ShapeText(std::span<const int64_t> shape);

using TensorMap = std::map<std::string, CheckpointTensor, std::less<>>;

// Parses and validates the bytes of a whole file. The views point into `file`. Checks that the
// header length is within the file and kMaxHeaderBytes, that the header is a JSON object without
// duplicate names, that dtypes are known, that shapes do not overflow and match the byte sizes, and
// that ranges are inside the data without overlaps or gaps. `name` is the file name for messages.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
Result<TensorMap> ParseSafetensors(std::span<const uint8_t> file, std::string_view name);

// An open safetensors file. Move-only.
class SafetensorsFile {
 public:
  // Maps and validates the file. Errors as for MappedFile::Open and ParseSafetensors.
  static Result<SafetensorsFile> Open(const std::string& path);

  const TensorMap& tensors() const { return tensors_; }
  const MappedFile& file() const { return file_; }

 private:
  SafetensorsFile(MappedFile file, TensorMap tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}

  MappedFile file_;
  TensorMap tensors_;
};

// model.safetensors.index.json: which shard of a checkpoint contains which tensor. Value type.
struct TensorIndex {
  std::map<std::string, std::string> file_of;  // by tensor name

  // All file names, each once.
  std::set<std::string> files() const;
};

// Parses the text of the file. INVALID_ARG names the tensors (at most 512) whose file name would
// leave the directory. `path` is for messages.
Result<TensorIndex> ParseTensorIndex(std::string_view text, std::string_view path);

}  // namespace nereid::llm
