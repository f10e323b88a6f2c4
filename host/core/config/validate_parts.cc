#include "host/core/config/validate_parts.h"

namespace nereid::config {

void Add(Faults* faults, std::string key, std::string message) {
  faults->push_back({"", 0, 0, std::move(key), std::move(message)});
}

void ValidatePreferredSizes(const std::vector<int32_t>& sizes, const ModelConfig& config,
                            const char* what, const std::string& key, Faults* faults) {
  for (const int32_t size : sizes) {
    if (size <= 0) {
      Add(faults, key, StrCat(what, " must be positive for ", config.name, ", got ", size));
    } else if (size > config.max_batch_size) {
      Add(faults, key,
          StrCat(what, " must be <= max batch size for ", config.name, ", which is ",
                 config.max_batch_size, ", got ", size));
    }
  }
}

}  // namespace nereid::config
