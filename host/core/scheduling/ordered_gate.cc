#include "host/core/scheduling/ordered_gate.h"

#include <utility>

#include "host/core/request/infer_response.h"

namespace nereid {

uint64_t OrderedGate::TakeTicket() {
  std::lock_guard lock(mutex_);
  line_.emplace_back();
  return first_ticket_ + line_.size() - 1;
}

void OrderedGate::Deliver(ResponseSink* sink, InferResponse* response, uint32_t flags) {
  sink->AddRef();
  std::unique_lock lock(mutex_);
  Place* const place =
      sink->gate_ticket() < first_ticket_ ? nullptr : &line_[sink->gate_ticket() - first_ticket_];
  if (place == nullptr || place->has_final) {  // a sender that was overtaken by the final response
    lock.unlock();
    delete response;
    sink->Release();
    return;
  }
  place->held.push_back({sink, response, flags});
  place->has_final = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
  if (delivering_) return;
  delivering_ = true;
  while (!line_.empty() && !line_.front().held.empty()) {
    const std::vector<Held> held = std::exchange(line_.front().held, {});
    if (line_.front().has_final) {
      line_.pop_front();
      ++first_ticket_;
    }
    lock.unlock();
    for (const Held& one : held) {
      one.sink->SendNow(one.response, one.flags);
      one.sink->Release();
    }
    lock.lock();
  }
  delivering_ = false;
}

}  // namespace nereid
