// The waiting room of a batching model: one queue a priority level, each with its own policy for
// size and timeouts. Order: level by level, inside a level by arrival, requests that overstayed a
// DELAY timeout last. [under its scheduler's mutex]
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/scheduling/request_list.h"
#include "nereid/status.h"

namespace nereid {

class PriorityQueue {
 public:
  explicit PriorityQueue(const DynamicBatching& config);

  // UNAVAILABLE when the request's level is full. Sets its queue_deadline_ns.
  Status Push(InferRequest* request, uint64_t now_ns);
  // False when it is not here.
  bool Remove(InferRequest* request);
  // Takes out the requests whose level rejects them by now; moves those that are to be delayed.
  void TakeExpired(uint64_t now_ns, std::vector<InferRequest*>* rejected);

  // In order: First(), then Next() until null.
  InferRequest* First() const;
  InferRequest* Next(const InferRequest* request) const;
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // How many levels it holds, empty ones among them: few, whatever priorities came.
  size_t num_levels() const { return levels_.size(); }
  // No request expires before; UINT64_MAX when none can.
  uint64_t earliest_deadline_ns() const { return earliest_deadline_ns_; }

 private:
  struct Level {
    QueuePolicy policy;
    RequestList ready;
    RequestList delayed;
  };
  uint64_t LevelNumber(const InferRequest& request) const;
  // Makes the level if no request has come to it yet.
  Level& LevelOf(const InferRequest& request);
  // Forgets an empty level where many were made.
  void Drop(std::map<uint64_t, Level>::iterator level);
  InferRequest* FirstFrom(std::map<uint64_t, Level>::const_iterator level) const;

  const DynamicBatching config_;
  std::map<uint64_t, Level> levels_;  // by number; 0 when there are no levels
  size_t size_ = 0;
  uint64_t earliest_deadline_ns_ = UINT64_MAX;
};

}  // namespace nereid
