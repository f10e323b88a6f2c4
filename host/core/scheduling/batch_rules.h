// Which requests may run together, and when a batch is good enough to go. Pure rules without a
// clock or a lock. [under the batcher's mutex]
#pragma once

#include <cstdint>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/request/infer_request.h"
#include "host/core/scheduling/batch_strategy.h"
#include "host/core/scheduling/priority_queue.h"

namespace nereid {

// True when both have the same inputs, and of the same shape where the model demands it.
bool MayShareBatch(const InferRequest& a, const InferRequest& b);

class BatchRules {
 public:
  // `strategy` has a say in each batch; null: none. It outlives the rules.
  BatchRules(const DynamicBatching& config, int64_t max_batch_size,
             BatchStrategy* strategy = nullptr);

  struct Decision {
    size_t num_requests = 0;     // from the front of the queue
    uint64_t wait_until_ns = 0;  // 0: go now
    int64_t num_missing = 1;     // while it waits: fewer new items than that change nothing
  };

  // A batch on trial: takes requests in order while they fit, then says what to do with them.
  class Trial {
   public:
    explicit Trial(const BatchRules& rules);
    ~Trial();
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;

    // False when the batch is closed: `request` and all after it do not join.
    bool Add(const InferRequest& request);
    // At least one request was added.
    Decision Finish(uint64_t now_ns) const;

   private:
    int64_t NumMissing() const;

    const BatchRules& rules_;
    const InferRequest* first_ = nullptr;
    int64_t size_ = 0;
    size_t num_requests_ = 0;
    size_t num_preferred_ = 0;  // requests of the largest preferred batch that they form
    bool closed_ = false;
    uint64_t oldest_ns_ = UINT64_MAX;
    void* strategy_batch_ = nullptr;
  };

  // `queue` must not be empty.
  Decision Decide(const PriorityQueue& queue, uint64_t now_ns) const;

 private:
  bool IsPreferred(int64_t size) const;

  BatchStrategy* const strategy_;
  std::vector<int64_t> preferred_sizes_;  // ascending, at least one
  const int64_t max_batch_size_;
  const uint64_t max_delay_ns_;
};

}  // namespace nereid
