#include "config/validate_parts.h"

namespace nereid::config {

void Add(Faults* faults, std::string key, std::string message) {
  faults->push_back({"", 0, 0, std::move(key), std::move(message)});
}

void ValidatePreferredSizes(const std::vector<int32_t>& sizes, int32_t max_batch_size,
                            const std::string& key, Faults* faults) {
  for (const int32_t size : sizes) {
    if (size <= 0) {
      Add(faults, key, StrCat("expected positive batch sizes, got ", size));
    } else if (size > max_batch_size) {
      Add(faults, key,
          StrCat("expected at most max_batch_size, which is ", max_batch_size, ", got ", size));
    }
  }
}

}  // namespace nereid::config
