#include "scheduling/ordered_gate.h"

#include <utility>

namespace nereid {

uint64_t OrderedGate::TakeTicket() {
  std::lock_guard lock(mutex_);
  line_.emplace_back();
  return first_ticket_ + line_.size() - 1;
}

void OrderedGate::Deliver(ResponseSink* sink, InferResponse* response, uint32_t flags) {
  sink->AddRef();
  std::unique_lock lock(mutex_);
  line_[sink->gate_ticket() - first_ticket_].held.push_back({sink, response, flags});
  if (delivering_) return;
  delivering_ = true;
  while (!line_.empty() && !line_.front().held.empty()) {
    const std::vector<Held> held = std::exchange(line_.front().held, {});
    if ((held.back().flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0) {
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
