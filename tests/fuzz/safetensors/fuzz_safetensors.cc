// Fuzzes the safetensors parser. Arbitrary bytes must not crash. Accepted tensors are inside the
// file, do not overlap, and have the size that type and shape require.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <utility>

#include "backends/llm_core/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nereid::llm;
  const auto parsed = ParseSafetensors({data, size}, "input");
  if (!parsed.ok()) return 0;
  std::set<std::pair<const uint8_t*, const uint8_t*>> ranges;
  for (const auto& [name, tensor] : *parsed) {
    uint64_t bytes = Info(tensor.type).size_bytes;
    for (const int64_t dim : tensor.shape) bytes *= static_cast<uint64_t>(dim);
    if (bytes != tensor.bytes.size()) std::abort();
    if (bytes == 0) continue;
    const uint8_t* first = tensor.bytes.data();
    if (first < data + 8 || first + bytes > data + size) std::abort();
    if (!ranges.emplace(first, first + bytes).second) std::abort();
  }
  const uint8_t* end = data;
  for (const auto& [first, last] : ranges) {
    if (first < end) std::abort();
    end = last;
  }
  return 0;
}
