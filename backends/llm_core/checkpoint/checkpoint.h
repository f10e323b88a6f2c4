// A Hugging Face checkpoint directory: config.json, generation_config.json and the tensors of
// model.safetensors or of the shards that model.safetensors.index.json lists; or a TensorRT-LLM
// checkpoint directory, which looks like one afterwards. Opened once at load; lives as long as the
// model, for weights may point into its mappings. [any thread]
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

class Checkpoint {
 public:
  // Every error names the directory or the file and says what to give instead.
  static Result<Checkpoint> Open(const std::string& directory);

  // config.json and generation_config.json alone: there are no tensors.
  static Result<Checkpoint> OpenConfig(const std::string& directory);

  // Of parts that lie elsewhere; `tensors` borrow memory that must outlive the checkpoint.
  static Checkpoint FromParts(std::string directory, std::string config_json,
                              std::string generation_config_json, TensorMap tensors);

  const std::string& directory() const { return directory_; }
  // Text of config.json; of generation_config.json ("" when there is none).
  const std::string& config_json() const { return config_json_; }
  const std::string& generation_config_json() const { return generation_config_json_; }

  // nullptr when there is no such tensor.
  const TensorView* Find(std::string_view name) const;
  const TensorMap& tensors() const { return tensors_; }

  // Tensors of model.safetensors.index.json that no file holds, with the file that it says.
  // ResolveWeights reports them with what else does not fit.
  const std::map<std::string, std::string>& broken_promises() const { return broken_promises_; }

  // An error where a file was cut and its lost bytes were read, as zeros.
  Status CheckWhole() const;

  // This tensor has been copied, and nobody will read it here any more: its pages leave memory.
  // [any thread]
  void LetGo(const TensorView& tensor) const;

 private:
  // The tensors of these files of the directory, into tensors_.
  Status OpenFiles(const std::set<std::string>& names);

  std::string directory_;
  std::string config_json_;
  std::string generation_config_json_;
  std::vector<SafetensorsFile> files_;
  std::vector<MergedTensor> merged_;  // of the ranks of a TensorRT-LLM checkpoint
  TensorMap tensors_;                 // of all files; views into files_ and merged_
  std::map<std::string, std::string> broken_promises_;
};

}  // namespace nereid::llm
