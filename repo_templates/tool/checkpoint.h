// Looks into a checkpoint directory, Hugging Face's or TensorRT-LLM's, without loading it: what
// model it holds, and whether everything that serving it needs is there. Every error names the
// file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::repo {

struct CheckpointSummary {
  std::string directory;  // absolute
  // "LlamaForCausalLM"; the model_type where config.json has no such name.
  std::string architecture;
  int64_t context_length = 0;  // in tokens; 0: not stated
  int64_t vocabulary_size = 0;
  std::string tokenizer_file;      // tokenizer.json, tokenizer.model, ...
  std::vector<std::string> files;  // what serving needs, relative to the directory
};

// What the engine can run: config.json is readable, its model_type and quantisation are known (of a
// TensorRT-LLM checkpoint the engine judges those), all weights are there and not cut off. Leaves
// the tokenizer fields empty, and its file out.
Result<CheckpointSummary> InspectWeights(const std::string& directory);

// The tokenizer's file in `directory`, which may also be that file.
Result<std::string> FindTokenizer(const std::string& directory);

// Both, for a checkpoint that becomes a repository.
Result<CheckpointSummary> InspectCheckpoint(const std::string& directory);

// The model_types that the engine knows.
std::vector<std::string> SupportedModelTypes();

}  // namespace nereid::repo
