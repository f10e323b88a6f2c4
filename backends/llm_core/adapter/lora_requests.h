// The LoRA adapters of a model as its requests name them: by lora_name, or by the tensors of
// TensorRT-LLM. Counts the requests that wait and run with each. [any thread]
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/lora/adapter_folder.h"
#include "backends/llm_core/lora/adapter_list.h"
#include "backends/llm_core/lora/adapter_registry.h"
#include "backends/llm_core/lora/task_adapters.h"
#include "nereid/backend.h"

namespace nereid::llm {

// The parameters of a model that concern adapters.
struct LoraParameters {
  // lora_adapters: names and folders, "a=/x,b=/y".
  std::vector<std::pair<std::string, std::string>> adapters;
  std::string folder;                      // lora_dir; empty: none
  std::string prefetch_folder;             // lora_prefetch_dir; empty: none
  int32_t max_rank = kDefaultAdapterRank;  // lora_cache_max_adapter_size
  int64_t host_bytes = 1LL << 30;          // lora_cache_host_memory_bytes: of tasks

  bool names_adapters() const {
    return !adapters.empty() || !folder.empty() || !prefetch_folder.empty();
  }
};

// Relative folders are relative to that of config.pbtxt.
Result<LoraParameters> ReadLoraParameters(const ModelContext& context);

// How many requests use which adapter.
class AdapterUsage {
 public:
  struct Names {
    std::string running, waiting;  // names, separated by commas
    bool operator==(const Names&) const = default;
  };

  void Add(const std::string& name, int num_waiting, int num_running);
  Names names() const;

 private:
  struct Counts {
    int waiting = 0, running = 0;
  };
  mutable std::mutex mutex_;  // guards counts_
  std::map<std::string, Counts> counts_;
};

// One request's part of AdapterUsage, for its life. Waiting at first.
class AdapterUse {
 public:
  AdapterUse(std::shared_ptr<AdapterUsage> usage, std::string name)
      : usage_(std::move(usage)), name_(std::move(name)) {
    usage_->Add(name_, 1, 0);
  }
  ~AdapterUse() { usage_->Add(name_, is_running_ ? 0 : -1, is_running_ ? -1 : 0); }
  AdapterUse(const AdapterUse&) = delete;
  AdapterUse& operator=(const AdapterUse&) = delete;

  void OnScheduled() {
    if (!std::exchange(is_running_, true)) usage_->Add(name_, -1, 1);
  }

 private:
  const std::shared_ptr<AdapterUsage> usage_;
  const std::string name_;
  bool is_running_ = false;
};

class LoraRequests {
 public:
  // Loads the adapters of the parameters and follows their folder. `model` is the name for the log.
  static Result<std::unique_ptr<LoraRequests>> Create(const LoraParameters& parameters,
                                                      LoraTargets targets,
                                                      const std::string& model);

  // The adapter of one item of a request; null if it has none.
  Result<std::shared_ptr<const LoraAdapter>> Find(Request& request, BatchInputs& inputs,
                                                  int64_t row);
  // Null for a request without an adapter.
  std::unique_ptr<AdapterUse> Use(const LoraAdapter* adapter) const;
  const AdapterUsage& usage() const { return *usage_; }
  AdapterRegistry& registry() { return registry_; }

 private:
  LoraRequests(const LoraParameters& parameters, LoraTargets targets)
      : registry_(std::move(targets), parameters.max_rank),
        tasks_(registry_.targets(), parameters.max_rank, parameters.host_bytes) {}

  Result<std::shared_ptr<const LoraAdapter>> FindTask(BatchInputs& inputs, int64_t row);

  AdapterRegistry registry_;
  TaskAdapters tasks_;
  const std::shared_ptr<AdapterUsage> usage_ = std::make_shared<AdapterUsage>();
  std::unique_ptr<AdapterFolder> folder_;  // null: none is followed
};

}  // namespace nereid::llm
