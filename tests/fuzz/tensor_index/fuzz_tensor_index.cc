// Fuzzes model.safetensors.index.json. Arbitrary text must not crash. No accepted file name leads
// outside the folder.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "backends/llm_core/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::filesystem::path root("/folder");
  const auto index =
      nereid::llm::ParseTensorIndex({reinterpret_cast<const char*>(data), size}, "input");
  if (!index.ok()) return 0;
  for (const std::string& file : index->files()) {
    if ((root / file).lexically_normal().parent_path() != root) std::abort();
  }
  return 0;
}
