// preserve_ordering: lets responses out in the order in which their requests arrived, although
// instances finish them in another. [any thread]
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "host/core/request/response_sink.h"

namespace nereid {

class OrderedGate final : public ResponseGate {
 public:
  // The next request in line. Its sink must send a final response some day.
  uint64_t TakeTicket();
  // Delivers what is first in line, also responses that others left here, on the calling thread.
  void Deliver(ResponseSink* sink, InferResponse* response, uint32_t flags) override;

 private:
  struct Held {
    ResponseSink* sink;  // counted
    InferResponse* response;
    uint32_t flags;
  };
  struct Place {
    std::vector<Held> held;
    bool has_final = false;  // held or delivered: nothing follows
  };

  std::mutex mutex_;  // guards what follows
  std::deque<Place> line_;
  uint64_t first_ticket_ = 0;  // of line_.front()
  bool delivering_ = false;    // one thread at a time, so that order holds outside the lock
};

}  // namespace nereid
