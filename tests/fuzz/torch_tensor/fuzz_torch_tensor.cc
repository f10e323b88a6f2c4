// Fuzzes the reader of torch.save's files. Arbitrary bytes must not crash. An accepted tensor lies
// in the file and has as many numbers as its shape says.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "host/frontend/openai/tensors/torch_tensor.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto tensor = nereid::openai::ReadTorchTensor(file);
  if (!tensor.ok()) return 0;
  uint64_t count = 1;
  for (const int64_t dim : tensor->shape) count *= static_cast<uint64_t>(dim);
  if (nereid::openai::FloatsOf(*tensor).size() != count) std::abort();
  if (tensor->bytes.empty()) return 0;
  const char* const last = tensor->bytes.data() + tensor->bytes.size();
  if (tensor->bytes.data() < file.data() || last > file.data() + size) std::abort();
  return 0;
}
