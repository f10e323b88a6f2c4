// Implements preserve_ordering: delivers responses in the order in which their requests arrived,
// although instances may finish them in another order. [any thread]
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "host/core/request/response_sink.h"

namespace nereid::core {

class ResponseReorderBuffer final : public ResponseReorderer {
 public:
  // Registers the next request and returns its ticket. The request's sink must eventually send a
  // final response.
  uint64_t TakeTicket();
  // Buffers the response, then delivers all responses that are due, including those that other
  // threads buffered. Delivery runs on the calling thread, without the lock.
  void Deliver(ResponseSink* sink, InferResponse* response, uint32_t flags) override;

 private:
  struct BufferedResponse {
    ResponseSink* sink;  // holds a reference
    InferResponse* response;
    uint32_t flags;
  };
  struct PendingRequest {
    std::vector<BufferedResponse> responses;
    bool has_final = false;  // the final response was buffered or delivered
  };

  std::mutex mutex_;  // guards what follows
  std::deque<PendingRequest> pending_;
  uint64_t first_ticket_ = 0;  // ticket of pending_.front()
  bool delivering_ =
      false;  // only one thread delivers at a time, which keeps the order outside the lock
};

}  // namespace nereid::core
