#include "host/core/scheduling/direct_scheduler.h"

#include "base/clock.h"
#include "base/spin_wait.h"
#include "host/core/scheduling/queue_errors.h"

namespace nereid {

Status DirectScheduler::Enqueue(InferRequest* request) {
  request->queue_start_ns = SteadyNowNs();
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return StoppedError(*request);
    queue_.PushBack(request);
    num_pending_.store(queue_.size(), std::memory_order_relaxed);
    wake = num_waiting_ > 0 && queue_.size() > num_spinning_;
  }
  if (wake) arrived_.notify_one();
  return Status::Ok();
}

bool DirectScheduler::Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) {
  batch->clear();
  std::unique_lock lock(mutex_);
  thread_local SpinWait spin;
  while (queue_.empty() && !stopped_ && Waits(mode) && !retired_.Contains(instance)) {
    if (spin.MayPay()) {
      ++num_spinning_;
      lock.unlock();
      spin.Until([this] { return num_pending() != 0; });
      lock.lock();
      --num_spinning_;
      if (!queue_.empty() || stopped_ || retired_.Contains(instance)) break;
    }
    ++num_waiting_;
    spin.Rest([&] { arrived_.wait(lock); });
    --num_waiting_;
  }
  if (retired_.Contains(instance)) {
    lock.unlock();
    arrived_.notify_one();  // it may have been woken in another's place
    return false;
  }
  if (queue_.empty()) return false;
  if (Leaves(mode)) return true;
  batch->push_back(queue_.PopFront());
  num_pending_.store(queue_.size(), std::memory_order_relaxed);
  return true;
}

// What one of several instances took in advance another one could have begun with.
bool DirectScheduler::TakeInTurn(size_t instance, size_t most, std::vector<InferRequest*>* batch) {
  if (most <= batch->size() || num_pending() == 0) return false;
  std::lock_guard lock(mutex_);
  if (num_instances_ > 1 || queue_.empty() || retired_.Contains(instance)) return false;
  while (batch->size() < most && !queue_.empty()) batch->push_back(queue_.PopFront());
  num_pending_.store(queue_.size(), std::memory_order_relaxed);
  return true;
}

void DirectScheduler::OnCancelled(InferRequest* request) {
  {
    std::lock_guard lock(mutex_);
    if (!queue_.Contains(request)) return;
    queue_.Remove(request);
    num_pending_.store(queue_.size(), std::memory_order_relaxed);
  }
  attendant_->Post([request] { FailCancelled(request); });
}

void DirectScheduler::AddInstance() {
  std::lock_guard lock(mutex_);
  ++num_instances_;
}

void DirectScheduler::RetireInstance(size_t instance) {
  {
    std::lock_guard lock(mutex_);
    --num_instances_;
    retired_.Add(instance);
  }
  arrived_.notify_all();
}

void DirectScheduler::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  arrived_.notify_all();
}

}  // namespace nereid
