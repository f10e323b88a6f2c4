// The LoRA adapters of the running sequences, and the executor's memory that they take. [engine
// thread]
#pragma once

#include <cstdint>
#include <map>

#include "backends/llm_core/engine/request.h"
#include "backends/llm_core/lora/lora_adapter.h"

namespace nereid::llm {

class RunningAdapters {
 public:
  // `capacity_bytes`: ExecutorLimits::adapter_bytes.
  explicit RunningAdapters(int64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // Whether a sequence of the request may run beside the others.
  bool Fits(const GenerationRequest& request) const {
    return request.adapter == nullptr || capacity_bytes_ == 0 ||
           users_.contains(request.adapter->serial()) ||
           used_bytes_ + request.adapter_bytes <= capacity_bytes_;
  }
  // A sequence of the request begins or ends to run.
  void Add(const GenerationRequest& request) {
    if (request.adapter != nullptr && ++users_[request.adapter->serial()] == 1)
      used_bytes_ += request.adapter_bytes;
  }
  void Remove(const GenerationRequest& request) {
    if (request.adapter == nullptr) return;
    const auto found = users_.find(request.adapter->serial());
    if (--found->second > 0) return;
    users_.erase(found);
    used_bytes_ -= request.adapter_bytes;
  }
  int64_t used_bytes() const { return used_bytes_; }

 private:
  const int64_t capacity_bytes_;
  std::map<uint64_t, int32_t> users_;  // sequences, by serial
  int64_t used_bytes_ = 0;
};

}  // namespace nereid::llm
