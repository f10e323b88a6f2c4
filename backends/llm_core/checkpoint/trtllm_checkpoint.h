// TensorRT-LLM checkpoints (config.json and rank0.safetensors, rank1.safetensors, ...): read as the
// Hugging Face checkpoint they were converted from. Tensors get their Hugging Face names; those of
// several ranks (tensor and pipeline parallel) are put together again. [load thread]
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

// A tensor that does not lie together in any file.
struct MergedTensor {
  std::unique_ptr<uint8_t[]> bytes;
  size_t size = 0;
};

struct TrtLlmCheckpoint {
  std::string config_json;  // as TrtLlmConfig's
  std::vector<SafetensorsFile> files;
  std::vector<MergedTensor> merged;
  TensorMap tensors;  // views into files and merged
};

// `directory` has a rank0.safetensors. A tensor that does not fit keeps its own name, so that it is
// reported with all that is missing.
Result<TrtLlmCheckpoint> ReadTrtLlmCheckpoint(const std::string& directory,
                                              const std::string& config_json);

// The tensors of all ranks, pipeline stage after stage, under their Hugging Face names: views into
// `ranks`' and into `merged`, for which `let_go` is called with each part once it is copied.
TensorMap MergeRanks(const TrtLlmLayout& layout, std::span<const TensorMap* const> ranks,
                     std::vector<MergedTensor>& merged,
                     const std::function<void(std::span<const uint8_t>)>& let_go);

}  // namespace nereid::llm
