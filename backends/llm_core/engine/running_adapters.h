// The LoRA adapters of the running sequences, the executor's memory that they take, and which
// waiting sequences may start beside them. [engine thread]
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "backends/llm_core/engine/sequence.h"
#include "backends/llm_core/lora/lora_adapter.h"

namespace nereid::llm {

class RunningAdapters {
 public:
  // Executor::PrepareAdapter(); empty: adapters are always ready.
  using Prepare = std::function<bool(const std::shared_ptr<const LoraAdapter>&)>;
  using Waiting = std::map<SequenceRank, std::unique_ptr<Sequence>>;
  // What a waiting sequence may do: start, let others start before it, or end the search.
  enum class Turn : uint8_t { kStart, kWait, kWaitAll };

  // `capacity_bytes`: ExecutorLimits::adapter_bytes.
  RunningAdapters(int64_t capacity_bytes, Prepare prepare)
      : capacity_bytes_(capacity_bytes), prepare_(std::move(prepare)) {}

  // Whether a sequence of the request may run beside the others.
  bool Fits(const GenerationRequest& request) const {
    return request.adapter == nullptr || capacity_bytes_ == 0 ||
           users_.contains(request.adapter->serial()) ||
           used_bytes_ + request.adapter_bytes <= capacity_bytes_;
  }
  // Before the first TurnOf of a step: announces the adapters of the next waiting sequences, if
  // others run.
  void BeginStep(const Waiting& waiting, bool others_run);
  // Called in order of rank. Only sequences whose adapter has no memory or is not ready are
  // overtaken. If nothing runs, a wait for an adapter delays nobody else.
  Turn TurnOf(const Sequence& sequence, bool others_run);
  // The sequence whose turn was kStart starts.
  void NoteStart(const Sequence& sequence) {
    if (num_skipped_ > 0 && sequence.request->adapter != nullptr) ++num_overtakers_;
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
  bool IsReady(const Sequence& sequence, bool others_run) const {
    return !prepare_ || sequence.request->adapter == nullptr || !others_run ||
           prepare_(sequence.request->adapter);
  }

  const int64_t capacity_bytes_;
  const Prepare prepare_;
  std::map<uint64_t, int32_t> users_;  // sequences, by serial
  int64_t used_bytes_ = 0;
  // The sequences of this step so far that wait for memory of adapters or behind sequences that do,
  // and those that wait until their adapter is ready.
  int32_t num_skipped_ = 0, num_unready_ = 0;
  // The first sequence that waits for memory of adapters, and how many with adapters of their own
  // have overtaken it.
  uint64_t overtaken_ = 0;
  int32_t num_overtakers_ = 0;
};

}  // namespace nereid::llm
