// Sequences and the slots that they occupy. A sequence has a slot of one instance or waits in the
// backlog. [under the sequence batcher's mutex]
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <vector>

#include "host/core/request/sequence_states.h"
#include "host/core/scheduling/delayed_start.h"
#include "host/core/scheduling/request_list.h"

namespace nereid::core {

// A sequence is the queue of its waiting requests.
struct Sequence : RequestList {
  static constexpr size_t kBacklog = SIZE_MAX;

  CorrelationId id;
  size_t instance_index = kBacklog;
  size_t slot = 0;
  bool is_new = true;      // no request of the sequence was executed yet
  bool in_flight = false;  // only maintained if the batcher tracks releases
  bool closing = false;    // ends once no request is queued or in flight
  uint64_t last_active_ns = 0;
  std::shared_ptr<SequenceStates> states;  // null: the model has no states

  bool idle() const { return empty() && !in_flight; }
  bool ready() const { return !empty() && !in_flight; }
};

// The slots of one instance: all slots that were ever occupied, and one more while the maximum is
// not reached.
struct InstanceSlots {
  std::vector<std::unique_ptr<Sequence>> slots;  // null: free
  std::condition_variable changed;               // the instance thread waits on it
  DelayedStart delay;
  bool retired = false;
};

}  // namespace nereid::core
