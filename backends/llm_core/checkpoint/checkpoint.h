// A checkpoint directory. Either Hugging Face: config.json, generation_config.json and
// model.safetensors, or the shards listed in model.safetensors.index.json. Or TensorRT-LLM, which
// is converted to the same form. Opened once at load. It lives as long as the model, because
// weights may point into its mappings. [any thread]
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backends/llm_core/checkpoint/safetensors.h"
#include "backends/llm_core/checkpoint/trtllm_checkpoint.h"
#include "nereid/status.h"

namespace nereid::llm {

// Move-only. Tensors are views into memory that it owns or borrows: valid while it lives.
class Checkpoint {
 public:
  // Maps the files and reads all headers, but no tensor data. NOT_FOUND, INVALID_ARG or UNSUPPORTED
  // name the directory or file and the expected content.
  static Result<Checkpoint> Open(const std::string& directory);

  // Opens config.json and this file of tensors.
  static Result<Checkpoint> OpenFile(const std::string& directory, const std::string& file);

  // Opens config.json and generation_config.json only; there are no tensors.
  static Result<Checkpoint> OpenConfig(const std::string& directory);

  // Creates a checkpoint from memory. `tensors` borrow memory that must outlive the checkpoint.
  static Checkpoint FromParts(std::string directory, std::string config_json,
                              std::string generation_config_json, TensorMap tensors);

  const std::string& directory() const { return directory_; }
  // The text of config.json, and of generation_config.json ("" if there is none).
  const std::string& config_json() const { return config_json_; }
  const std::string& generation_config_json() const { return generation_config_json_; }

  // Null if there is no such tensor.
  const CheckpointTensor* Find(std::string_view name) const;
  // All tensors by Hugging Face name.
  const TensorMap& tensors() const { return tensors_; }

  // Tensors that model.safetensors.index.json lists and their file does not contain, with that
  // file. ResolveWeights reports them with the other errors.
  const std::map<std::string, std::string>& missing_in_files() const { return missing_in_files_; }

  // UNAVAILABLE if a file was truncated and lost bytes were read as zeros.
  Status CheckIntact() const;

  // Releases the pages of a tensor that was copied and will not be read again. [any thread]
  void DropPages(const CheckpointTensor& tensor) const;

 private:
  // Opens these files of the directory and adds their tensors to tensors_.
  Status OpenFiles(const std::set<std::string>& names);

  std::string directory_;
  std::string config_json_;
  std::string generation_config_json_;
  std::vector<SafetensorsFile> files_;
  std::vector<MergedTensor> merged_;  // joined from the ranks of a TensorRT-LLM checkpoint
  TensorMap tensors_;                 // of all files; views into files_ and merged_
  std::map<std::string, std::string> missing_in_files_;
};

}  // namespace nereid::llm
