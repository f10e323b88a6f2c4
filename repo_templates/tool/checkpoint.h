// Inspects a checkpoint directory of Hugging Face or TensorRT-LLM without loading it: its model,
// and whether all files that serving needs exist. Every error names the file.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::repo {

struct CheckpointSummary {
  std::string directory;  // absolute
  // "LlamaForCausalLM", or the model_type if config.json has no such name.
  std::string architecture;
  int64_t context_length = 0;  // in tokens; 0: not stated
  int64_t vocabulary_size = 0;
  uint64_t weight_bytes = 0;
  // The weights in the files, without block scales and packed integers: 0 if it is quantized.
  uint64_t num_parameters = 0;
  std::string data_type;  // that of most weight bytes, such as "BF16"; of a quantized checkpoint,
                          // the method, such as "awq"
  bool has_chat_template = false;
  // The numbers of generation_config.json under the keys of SamplingDefaultKeys, as texts.
  std::map<std::string, std::string> sampling_defaults;
  std::string tokenizer_file;      // tokenizer.json, tokenizer.model, ...
  std::vector<std::string> files;  // the files that serving needs, relative to the directory
};

// The sampling parameters for which a checkpoint may recommend values.
std::span<const char* const> SamplingDefaultKeys();

// Checks that the engine can run the weights: config.json is readable, model_type and quantization
// are supported, and all weight files exist with their full size. For a TensorRT-LLM checkpoint,
// the engine itself checks the model type. Sets no tokenizer fields and does not list the
// tokenizer's file.
Result<CheckpointSummary> InspectWeights(const std::string& directory);

// Returns the name of the tokenizer's file. `directory` may also be the path of that file.
Result<std::string> FindTokenizer(const std::string& directory);

// Both checks, for a checkpoint that becomes a repository.
// `tokenizer`: a folder or file to use in place of the checkpoint's tokenizer; empty: none.
Result<CheckpointSummary> InspectCheckpoint(const std::string& directory,
                                            const std::string& tokenizer = "");

// The values of model_type that the engine supports.
std::vector<std::string> SupportedModelTypes();

}  // namespace nereid::repo
