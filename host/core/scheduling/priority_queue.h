// The request queue of a batching model: one queue per priority level, each with its own queue
// policy (size and timeout). Order: by level, within a level by arrival, and requests that exceeded
// a timeout with the action DELAY last. [under the scheduler's mutex]
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/scheduling/request_list.h"
#include "nereid/status.h"

namespace nereid::core {

class PriorityQueue {
 public:
  explicit PriorityQueue(const DynamicBatching& config);

  // Sets the request's queue_deadline_ns. UNAVAILABLE if the queue of its level is full.
  Status Push(InferRequest* request, uint64_t now_ns);
  // Returns false if the request is not in this queue.
  bool Remove(InferRequest* request);
  // Removes the expired requests whose level rejects them and appends them to `rejected`. Moves
  // expired requests with the action DELAY to the end of their level.
  void TakeExpired(uint64_t now_ns, std::vector<InferRequest*>* rejected);

  // Iterates in order: First(), then Next() until it returns null.
  InferRequest* First() const;
  InferRequest* Next(const InferRequest* request) const;
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Number of levels in memory, including empty ones. Bounded, whatever priorities clients send.
  size_t num_levels() const { return levels_.size(); }
  // No request expires before this time; UINT64_MAX if none can expire.
  uint64_t earliest_deadline_ns() const { return earliest_deadline_ns_; }

 private:
  struct Level {
    QueuePolicy policy;
    RequestList ready;
    RequestList delayed;
  };
  uint64_t LevelNumber(const InferRequest& request) const;
  // Creates the level on first use.
  Level& LevelOf(const InferRequest& request);
  // Erases the level if it is empty and many levels exist.
  void EraseIfUnused(std::map<uint64_t, Level>::iterator level);
  InferRequest* FirstFrom(std::map<uint64_t, Level>::const_iterator level) const;

  const DynamicBatching config_;
  std::map<uint64_t, Level> levels_;  // by level number; 0 if the model has no priority levels
  size_t size_ = 0;
  uint64_t earliest_deadline_ns_ = UINT64_MAX;
};

}  // namespace nereid::core
