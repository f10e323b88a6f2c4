// How the sequences of one instance form a batch, as the configuration says: direct or oldest. [any
// thread; Choose: under the mutex of the sequence batcher]
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/scheduling/batch_rules.h"
#include "host/core/scheduling/sequence_lane.h"

namespace nereid {

class SequenceStrategy {
 public:
  // `config` has sequence_batching.
  explicit SequenceStrategy(const ModelConfig& config);

  bool is_direct() const { return oldest() == nullptr; }
  bool preserves_ordering() const { return oldest() != nullptr && oldest()->preserve_ordering; }
  size_t slots_per_lane() const { return num_slots_; }

  struct Choice {
    std::vector<Sequence*> sequences;     // whose first requests form the batch
    uint64_t wait_until_ns = UINT64_MAX;  // else: it may yet become a better one
  };
  Choice Choose(SequenceLane& lane, uint64_t now_ns) const;

 private:
  const SequenceOldest* oldest() const { return std::get_if<SequenceOldest>(&kind_); }
  bool IsDelayed(SequenceLane& lane) const;
  Choice ChooseDirect(const SequenceLane& lane, uint64_t now_ns) const;
  Choice ChooseOldest(const SequenceLane& lane, uint64_t now_ns) const;

  const std::variant<SequenceDirect, SequenceOldest> kind_;
  const size_t num_slots_;
  const BatchRules rules_;  // of the oldest strategy
};

}  // namespace nereid
