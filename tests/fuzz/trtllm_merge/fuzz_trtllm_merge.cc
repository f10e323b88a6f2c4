// Fuzzes TensorRT-LLM checkpoints: arbitrary text as config.json, and one safetensors file as that
// of every rank. Nothing may crash. Every merged tensor has the size that type and shape require.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "backends/llm_core/checkpoint/trtllm_checkpoint.h"

unsigned g_checksum = 0;  // global, so that the compiler keeps the reads of all bytes

// The input is config.json, a zero byte and the safetensors file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::llm;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t separator = text.find('\0');
  if (separator == std::string::npos) return 0;
  const auto config = ReadTrtLlmConfig(text.substr(0, separator));
  const auto file = ParseSafetensors({data + separator + 1, size - separator - 1}, "rank0");
  if (!config.ok() || !file.ok()) return 0;
  const std::vector<const TensorMap*> ranks(config->layout.tp * config->layout.pp, &*file);
  std::vector<MergedTensor> merged;
  const TensorMap tensors = MergeRanks(config->layout, ranks, merged, {});
  for (const auto& [name, tensor] : tensors) {
    uint64_t bytes = Info(tensor.type).size_bytes;
    for (const int64_t dim : tensor.shape) bytes *= static_cast<uint64_t>(dim);
    if (bytes != tensor.bytes.size()) std::abort();
    for (const uint8_t byte : tensor.bytes) g_checksum += byte;
  }
  return 0;
}
