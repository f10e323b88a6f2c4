// Reads files without the lock, so that requests find their adapters meanwhile.
#include "backends/llm_core/lora/adapter_registry.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "backends/llm_core/lora/peft_adapter.h"

namespace nereid::llm {

Status CheckAdapterName(const std::string& name) {
  constexpr size_t kMaxBytes = 255;
  const auto is_usual = [](unsigned char byte) {
    return std::isalnum(byte) || byte == '.' || byte == '_' || byte == '-';
  };
  if (!name.empty() && name.size() <= kMaxBytes && name[0] != '.' &&
      std::all_of(name.begin(), name.end(), is_usual)) {
    return Status::Ok();
  }
  return InvalidArgError("'", name.substr(0, kMaxBytes),
                         "' is no name of a LoRA adapter, expected ", "1 to ", kMaxBytes,
                         " letters, digits, '.', '_' and '-'");
}

Status AdapterRegistry::Load(const std::string& name, const std::string& folder) {
  NEREID_RETURN_IF_ERROR(CheckAdapterName(name));
  NEREID_ASSIGN_OR_RETURN(std::shared_ptr<const LoraAdapter> adapter,
                          ReadPeftAdapter(name, folder, targets_, max_rank_));
  const std::lock_guard lock(mutex_);
  adapters_[name].swap(adapter);
  return Status::Ok();
}

bool AdapterRegistry::Unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return adapters_.erase(name) > 0;
}

Result<std::shared_ptr<const LoraAdapter>> AdapterRegistry::Find(const std::string& name) const {
  constexpr size_t kMaxShown = 512;
  std::string known;
  {
    const std::lock_guard lock(mutex_);
    const auto found = adapters_.find(name);
    if (found != adapters_.end()) return found->second;
    for (const auto& [each, adapter] : adapters_) {
      if (known.size() > kMaxShown) {
        known += StrCat(" and others of ", adapters_.size());
        break;
      }
      known += StrCat(known.empty() ? "" : ", ", "'", each, "'");
    }
  }
  return InvalidArgError("LoRA adapter '", name.substr(0, kMaxShown),
                         "' is not known; adapters: ", known.empty() ? "none" : known);
}

std::vector<std::string> AdapterRegistry::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, adapter] : adapters_) names.push_back(name);
  return names;
}

bool AdapterRegistry::is_empty() const {
  const std::lock_guard lock(mutex_);
  return adapters_.empty();
}

}  // namespace nereid::llm
