// Fuzzes the files of lora_prefetch_dir. The first two bytes are the size of
// model.lora_config.npy, which model.lora_weights.npy follows. Arbitrary bytes must not crash.
// Accepted tensors have the sizes of their shapes.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "backends/llm_core/lora/task_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t split = data[0] | size_t{data[1]} << 8;
  if (split > all.size()) return 0;
  std::vector<uint16_t> halves;
  std::vector<int32_t> numbers;
  const auto read =
      nereid::llm::ReadTaskFiles(all.substr(split), all.substr(0, split), halves, numbers);
  if (!read.ok()) return 0;
  const auto num_weights = static_cast<int64_t>(read->weights.size());
  const auto num_places = static_cast<int64_t>(read->config.size());
  if (num_weights != read->num_rows * read->width) std::abort();
  if (num_places != read->num_rows * read->config_width) std::abort();
  if (num_weights * 2 > static_cast<int64_t>(size)) std::abort();
  return 0;
}
