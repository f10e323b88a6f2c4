#include "host/core/scheduling/response_reorder_buffer.h"

#include <utility>

#include "host/core/request/infer_response.h"

namespace nereid::core {

uint64_t ResponseReorderBuffer::TakeTicket() {
  std::lock_guard lock(mutex_);
  pending_.emplace_back();
  return first_ticket_ + pending_.size() - 1;
}

void ResponseReorderBuffer::Deliver(ResponseSink* sink, InferResponse* response, uint32_t flags) {
  sink->AddRef();
  std::unique_lock lock(mutex_);
  PendingRequest* const request = sink->reorder_ticket() < first_ticket_
                                      ? nullptr
                                      : &pending_[sink->reorder_ticket() - first_ticket_];
  // Another sender has already sent the final response.
  if (request == nullptr || request->has_final) {
    lock.unlock();
    delete response;
    sink->Release();
    return;
  }
  request->responses.push_back({sink, response, flags});
  request->has_final = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
  if (delivering_) return;
  delivering_ = true;
  while (!pending_.empty() && !pending_.front().responses.empty()) {
    const std::vector<BufferedResponse> responses = std::exchange(pending_.front().responses, {});
    if (pending_.front().has_final) {
      pending_.pop_front();
      ++first_ticket_;
    }
    lock.unlock();
    for (const BufferedResponse& buffered : responses) {
      buffered.sink->SendNow(buffered.response, buffered.flags);
      buffered.sink->Release();
    }
    lock.lock();
  }
  delivering_ = false;
}

}  // namespace nereid::core
