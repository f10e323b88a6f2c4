// Any text as config.json of a TensorRT-LLM checkpoint, and any safetensors file as that of each of
// its ranks: a verdict, never a crash. Every tensor is as large as its type and shape say.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "backends/llm_core/checkpoint/trtllm_checkpoint.h"

unsigned nereid_sum_of_bytes = 0;  // of the whole world, so that all of them are read

// config.json, a zero, the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::llm;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find('\0');
  if (cut == std::string::npos) return 0;
  const auto config = ReadTrtLlmConfig(text.substr(0, cut));
  const auto file = ParseSafetensors({data + cut + 1, size - cut - 1}, "rank0");
  if (!config.ok() || !file.ok()) return 0;
  const std::vector<const TensorMap*> ranks(config->layout.tp * config->layout.pp, &*file);
  std::vector<MergedTensor> merged;
  const TensorMap tensors = MergeRanks(config->layout, ranks, merged, {});
  for (const auto& [name, tensor] : tensors) {
    uint64_t bytes = Info(tensor.type).size_bytes;
    for (const int64_t dim : tensor.shape) bytes *= static_cast<uint64_t>(dim);
    if (bytes != tensor.bytes.size()) std::abort();
    for (const uint8_t byte : tensor.bytes) nereid_sum_of_bytes += byte;
  }
  return 0;
}
