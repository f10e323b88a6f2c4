// The strategy by which sequences of one instance form a batch: direct or oldest, as configured.
// [any thread; Choose: under the sequence batcher's mutex]
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/scheduling/batch_rules.h"
#include "host/core/scheduling/sequence_slots.h"

namespace nereid::core {

class SequenceStrategy {
 public:
  // `config` must have sequence_batching.
  explicit SequenceStrategy(const ModelConfig& config);

  bool is_direct() const { return oldest() == nullptr; }
  bool preserves_ordering() const { return oldest() != nullptr && oldest()->preserve_ordering; }
  size_t slots_per_instance() const { return num_slots_; }

  struct Choice {
    std::vector<Sequence*> sequences;     // the first request of each forms the batch
    uint64_t wait_until_ns = UINT64_MAX;  // until then more requests may improve the batch
  };
  Choice Choose(InstanceSlots& instance, uint64_t now_ns) const;

 private:
  const SequenceOldest* oldest() const { return std::get_if<SequenceOldest>(&kind_); }
  bool IsDelayed(InstanceSlots& instance) const;
  Choice ChooseDirect(const InstanceSlots& instance, uint64_t now_ns) const;
  Choice ChooseOldest(const InstanceSlots& instance, uint64_t now_ns) const;

  const std::variant<SequenceDirect, SequenceOldest> kind_;
  const size_t num_slots_;
  const BatchRules rules_;  // used by the oldest strategy
};

}  // namespace nereid::core
