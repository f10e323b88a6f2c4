// Which requests may run together, and when a batch is good enough to go. Pure rules without a
// clock or a lock. [under the batcher's mutex]
#pragma once

#include <cstdint>
#include <vector>

#include "config/model_config.h"
#include "request/infer_request.h"
#include "scheduling/priority_queue.h"

namespace nereid {

// True when both have the same inputs, and of the same shape where the model demands it.
bool MayShareBatch(const InferRequest& a, const InferRequest& b);

class BatchRules {
 public:
  BatchRules(const DynamicBatching& config, int64_t max_batch_size);

  struct Decision {
    size_t num_requests = 0;     // from the front of the queue
    uint64_t wait_until_ns = 0;  // 0: go now
  };
  // `queue` must not be empty.
  Decision Decide(const PriorityQueue& queue, uint64_t now_ns) const;

 private:
  bool IsPreferred(int64_t size) const;

  std::vector<int64_t> preferred_sizes_;  // ascending, at least one
  const int64_t max_batch_size_;
  const uint64_t max_delay_ns_;
};

}  // namespace nereid
