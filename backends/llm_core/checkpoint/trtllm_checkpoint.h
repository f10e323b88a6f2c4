// Reads a TensorRT-LLM checkpoint (config.json and rank0.safetensors, rank1.safetensors, ...) as
// the Hugging Face checkpoint it was converted from. Tensors get their Hugging Face names, and the
// shards of several ranks (tensor and pipeline parallel) are joined. [load thread]
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/llm_core/checkpoint/safetensors.h"
#include "backends/llm_core/checkpoint/trtllm_config.h"
#include "nereid/status.h"

namespace nereid::llm {

// A joined tensor, which is not contiguous in any file.
struct MergedTensor {
  std::unique_ptr<uint8_t[]> bytes;
  size_t size = 0;
};

struct TrtLlmCheckpoint {
  std::string config_json;  // see TrtLlmConfig
  std::vector<SafetensorsFile> files;
  std::vector<MergedTensor> merged;
  TensorMap tensors;  // views into `files` and `merged`
};

// `directory` must contain rank0.safetensors. A tensor that cannot be mapped keeps its own name, so
// that ResolveWeights reports it with the other errors.
Result<TrtLlmCheckpoint> ReadTrtLlmCheckpoint(const std::string& directory,
                                              const std::string& config_json);

// Returns the tensors of all ranks, stage by stage, under their Hugging Face names. The views point
// into `ranks` and `merged`. `release_part` is called with each shard once it is copied.
TensorMap MergeRanks(const TrtLlmLayout& layout, std::span<const TensorMap* const> ranks,
                     std::vector<MergedTensor>& merged,
                     const std::function<void(std::span<const uint8_t>)>& release_part);

}  // namespace nereid::llm
