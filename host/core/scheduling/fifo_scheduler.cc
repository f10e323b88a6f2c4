#include "host/core/scheduling/fifo_scheduler.h"

#include "base/clock.h"
#include "base/spin_wait.h"
#include "host/core/scheduling/scheduler.h"

namespace nereid::core {

Status FifoScheduler::Enqueue(InferRequest* request) {
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

bool FifoScheduler::Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) {
  batch->clear();
  std::unique_lock lock(mutex_);
  thread_local SpinWait spin;
  while (queue_.empty() && !stopped_ && IsBlocking(mode) && !retired_.Contains(instance)) {
    if (spin.ShouldSpin()) {
      ++num_spinning_;
      lock.unlock();
      spin.SpinUntil([this] { return num_pending() != 0; });
      lock.lock();
      --num_spinning_;
      if (!queue_.empty() || stopped_ || retired_.Contains(instance)) break;
    }
    ++num_waiting_;
    spin.Sleep([&] { arrived_.wait(lock); });
    --num_waiting_;
  }
  if (retired_.Contains(instance)) {
    lock.unlock();
    arrived_.notify_one();  // this thread may have consumed the notification of another one
    return false;
  }
  if (queue_.empty()) return false;
  if (IsPeek(mode)) return true;
  batch->push_back(queue_.PopFront());
  num_pending_.store(queue_.size(), std::memory_order_relaxed);
  return true;
}

// With several instances, a request that one takes in advance could be executed sooner by another.
bool FifoScheduler::TakeForSerialExecution(size_t instance, size_t max_requests,
                                           std::vector<InferRequest*>* batch) {
  if (max_requests <= batch->size() || num_pending() == 0) return false;
  std::lock_guard lock(mutex_);
  if (num_instances_ > 1 || queue_.empty() || retired_.Contains(instance)) return false;
  while (batch->size() < max_requests && !queue_.empty()) batch->push_back(queue_.PopFront());
  num_pending_.store(queue_.size(), std::memory_order_relaxed);
  return true;
}

void FifoScheduler::OnCancelled(InferRequest* request) {
  {
    std::lock_guard lock(mutex_);
    if (!queue_.Contains(request)) return;
    queue_.Remove(request);
    num_pending_.store(queue_.size(), std::memory_order_relaxed);
  }
  timeout_thread_->Post([request] { FailCancelled(request); });
}

void FifoScheduler::AddInstance() {
  std::lock_guard lock(mutex_);
  ++num_instances_;
}

void FifoScheduler::RetireInstance(size_t instance) {
  {
    std::lock_guard lock(mutex_);
    --num_instances_;
    retired_.Add(instance);
  }
  arrived_.notify_all();
}

void FifoScheduler::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  arrived_.notify_all();
}

}  // namespace nereid::core
