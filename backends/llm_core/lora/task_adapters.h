// LoRA adapters that clients send as tensors, in the form of TensorRT-LLM: weights and their
// places, under a number, the task id. The weights stay in a cache, so that later requests of the
// task need only the number. [any thread]
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "backends/llm_core/lora/lora_adapter.h"
#include "backends/llm_core/lora/lora_targets.h"
#include "nereid/status.h"

namespace nereid::llm {

// The tensors lora_weights and lora_config of a request. Borrowed.
struct TaskWeights {
  // [num_rows, width] in half precision. A row holds A [rank, inputs] and B [outputs, rank] of one
  // module, scaled, and padding.
  std::span<const uint16_t> weights;
  int64_t num_rows = 0;
  int64_t width = 0;
  // [num_rows, config_width]: number of the module, layer, rank.
  std::span<const int32_t> config;
  int64_t config_width = 3;
};

// UNSUPPORTED names a module that decoders do not have or the engine does not adapt; INVALID_ARG
// names the row, and both values of a size, rank, or number that does not fit.
Result<std::shared_ptr<const LoraAdapter>> ReadTaskAdapter(uint64_t task_id,
                                                           const TaskWeights& weights,
                                                           const LoraTargets& targets,
                                                           int32_t max_rank);

class TaskAdapters {
 public:
  // `targets` must outlive the object. `max_bytes`: of all weights; the task that was used least
  // recently is dropped for a new one.
  TaskAdapters(const LoraTargets& targets, int32_t max_rank, int64_t max_bytes)
      : targets_(targets), max_rank_(max_rank), max_bytes_(max_bytes) {}

  // Null if the task is not in the cache.
  std::shared_ptr<const LoraAdapter> Find(uint64_t task_id);
  // Adds the task, or finds it: the weights of a task that is in the cache are not read again.
  // Errors as ReadTaskAdapter, and INVALID_ARG if the weights alone exceed the cache.
  Result<std::shared_ptr<const LoraAdapter>> Add(uint64_t task_id, const TaskWeights& weights);
  int64_t size_bytes() const;
  int64_t max_bytes() const { return max_bytes_; }

 private:
  struct Task {
    std::shared_ptr<const LoraAdapter> adapter;
    std::list<uint64_t>::iterator place;  // in by_use_
  };

  const LoraTargets& targets_;
  const int32_t max_rank_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;  // guards the members below
  std::map<uint64_t, Task> tasks_;
  std::list<uint64_t> by_use_;  // the most recent one first
  int64_t size_bytes_ = 0;
};

}  // namespace nereid::llm
