// The LoRA adapters of a model by name. They are loaded and unloaded while the model serves: a
// request that has found an adapter keeps it until it ends. [any thread]
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/llm_core/lora/lora_adapter.h"
#include "backends/llm_core/lora/lora_targets.h"
#include "nereid/status.h"

namespace nereid::llm {

class AdapterRegistry {
 public:
  // `max_rank`: adapters with a larger rank are refused.
  AdapterRegistry(LoraTargets targets, int32_t max_rank)
      : targets_(std::move(targets)), max_rank_(max_rank) {}

  // Reads the adapter in `folder`, in PEFT's format. It replaces one of the same name; requests
  // that run keep the old one. Errors as ReadPeftAdapter.
  Status Load(const std::string& name, const std::string& folder);
  // New requests do not find it any more. Returns whether there was one.
  bool Unload(const std::string& name);

  // INVALID_ARG names the adapters that are known.
  Result<std::shared_ptr<const LoraAdapter>> Find(const std::string& name) const;
  std::vector<std::string> names() const;
  bool is_empty() const;

  const LoraTargets& targets() const { return targets_; }
  int32_t max_rank() const { return max_rank_; }

 private:
  const LoraTargets targets_;
  const int32_t max_rank_;
  mutable std::mutex mutex_;  // guards adapters_
  std::map<std::string, std::shared_ptr<const LoraAdapter>> adapters_;
};

// INVALID_ARG unless the name is that of a folder or file: letters, digits and "._-", at most 255.
Status CheckAdapterName(const std::string& name);

}  // namespace nereid::llm
