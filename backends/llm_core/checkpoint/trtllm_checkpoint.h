// TensorRT-LLM checkpoints (config.json and rank0.safetensors, rank1.safetensors, ...): read as the
// Hugging Face checkpoint they were converted from. Tensors get their Hugging Face names; those of
// several ranks (tensor and pipeline parallel) are put together again. [load thread]
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "llm_core/checkpoint/safetensors.h"
#include "nereid/status.h"

namespace nereid::llm {

// A tensor that does not lie together in any file.
struct MergedTensor {
  std::unique_ptr<uint8_t[]> bytes;
  size_t size = 0;
};

struct TrtLlmCheckpoint {
  std::string config_json;  // as Hugging Face would write it; quant_method is "trtllm_awq"
  std::vector<SafetensorsFile> files;
  std::vector<MergedTensor> merged;
  TensorMap tensors;  // views into files and merged
};

// `directory` has a rank0.safetensors. Known: Llama, Mistral and Qwen2, in fp32, fp16 or bf16, and
// with W4A16_AWQ; others are UNSUPPORTED by name. A tensor that does not fit keeps its own name, so
// that it is reported with all that is missing.
Result<TrtLlmCheckpoint> ReadTrtLlmCheckpoint(const std::string& directory,
                                              const std::string& config_json);

}  // namespace nereid::llm
