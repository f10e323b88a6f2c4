#include "host/frontend/openai/tensors/loaded_adapters.h"

#include <algorithm>

namespace nereid::openai {

void LoadedAdapters::Set(const std::string& model, const std::string& adapter, bool is_loaded,
                         bool is_configured) {
  {
    const std::lock_guard lock(mutex_);
    if (is_loaded == is_configured) {
      changes_[model].erase(adapter);
    } else {
      changes_[model][adapter] = is_loaded;
    }
  }
  version_.fetch_add(1, std::memory_order_release);
}

void LoadedAdapters::Apply(const std::string& model, std::vector<std::string>& adapters) const {
  const std::lock_guard lock(mutex_);
  const auto found = changes_.find(model);
  if (found == changes_.end()) return;
  for (const auto& [adapter, is_loaded] : found->second) {
    const auto place = std::find(adapters.begin(), adapters.end(), adapter);
    if (is_loaded && place == adapters.end()) {
      adapters.push_back(adapter);
    } else if (!is_loaded && place != adapters.end()) {
      adapters.erase(place);
    }
  }
}

}  // namespace nereid::openai
