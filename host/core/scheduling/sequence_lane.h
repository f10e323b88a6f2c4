// Sequences and where they are: each has a slot in the lane of one instance, or waits in the
// backlog. [under the mutex of the sequence batcher]
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <vector>

#include "host/core/request/sequence_states.h"
#include "host/core/scheduling/delayed_start.h"
#include "host/core/scheduling/request_list.h"

namespace nereid {

// Its own queue holds the requests that wait.
struct Sequence : RequestList {
  static constexpr size_t kBacklog = SIZE_MAX;

  CorrelationId id;
  size_t lane = kBacklog;
  size_t slot = 0;
  bool fresh = true;       // none of its requests has been dispatched
  bool in_flight = false;  // only where releases are followed
  bool closing = false;    // ends when nothing of it waits or is in flight
  uint64_t last_active_ns = 0;
  std::shared_ptr<SequenceStates> states;  // null: the model has none

  bool idle() const { return empty() && !in_flight; }
  bool ready() const { return !empty() && !in_flight; }
};

// The slots of one instance: those that were ever taken, and one more while there may be more.
struct SequenceLane {
  std::vector<std::unique_ptr<Sequence>> slots;  // null: free
  std::condition_variable changed;               // its instance's thread waits here
  DelayedStart delay;
  bool retired = false;
};

}  // namespace nereid
