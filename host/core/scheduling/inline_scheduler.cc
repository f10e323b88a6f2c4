#include "host/core/scheduling/inline_scheduler.h"

#include "base/clock.h"

namespace nereid {

// No look at stopped_: requests keep their model, and a model stops its scheduler last.
Status InlineScheduler::Enqueue(InferRequest* request) {
  request->queue_start_ns = SteadyNowNs();
  execute_(request);
  return Status::Ok();
}

bool InlineScheduler::Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) {
  batch->clear();
  if (!Waits(mode)) return false;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || retired_.Contains(instance); });
  return false;
}

void InlineScheduler::RetireInstance(size_t instance) {
  {
    std::lock_guard lock(mutex_);
    retired_.Add(instance);
  }
  changed_.notify_all();
}

void InlineScheduler::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

}  // namespace nereid
