// The batching rules: which requests may be executed together, and when a batch is released. They
// have neither a clock nor a lock. Used by the dynamic batcher and by the sequence batcher's oldest
// strategy. [under the batcher's mutex]
#pragma once

#include <cstdint>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/request/infer_request.h"
#include "host/core/scheduling/priority_queue.h"

namespace nereid::core {

// True if the requests have the same set of inputs, and equal shapes for all of RequestSchema's
// equal_shape_inputs. The contents of shape tensors must be equal, too.
bool MayShareBatch(const InferRequest& a, const InferRequest& b);

// An additional condition for which requests share a batch: a custom batching library. [under the
// batcher's mutex]
class BatchStrategy {
 public:
  virtual ~BatchStrategy() = default;
  // Starts a candidate batch. The result is passed to the other two functions.
  virtual void* BeginBatch() = 0;
  // Returns false to close the batch before `request`.
  virtual bool Include(const InferRequest& request, void* batch) = 0;
  virtual void EndBatch(void* batch) = 0;
};

class BatchRules {
 public:
  // `strategy` may restrict each batch; null: no strategy. It must outlive the rules.
  BatchRules(const DynamicBatching& config, int64_t max_batch_size,
             BatchStrategy* strategy = nullptr);

  struct Decision {
    size_t num_requests = 0;     // taken from the front of the queue
    uint64_t wait_until_ns = 0;  // 0: release the batch now
    int64_t num_missing =
        1;  // elements of the batch dimension that must arrive before deciding again makes sense
  };

  // A batch under construction: accepts requests in order while they fit, then decides whether to
  // release them.
  class CandidateBatch {
   public:
    explicit CandidateBatch(const BatchRules& rules);
    ~CandidateBatch();
    CandidateBatch(const CandidateBatch&) = delete;
    CandidateBatch& operator=(const CandidateBatch&) = delete;

    // Returns false if the batch is closed: neither `request` nor any later request joins it.
    bool Add(const InferRequest& request);
    // At least one request must have been added.
    Decision Finish(uint64_t now_ns) const;

   private:
    int64_t NumMissing() const;

    const BatchRules& rules_;
    const InferRequest* first_ = nullptr;
    int64_t size_ = 0;
    size_t num_requests_ = 0;
    size_t num_preferred_ =
        0;  // number of requests that form the largest batch of a preferred size so far
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

}  // namespace nereid::core
