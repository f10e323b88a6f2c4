#include "host/core/scheduling/dynamic_batcher.h"

#include <algorithm>

#include "base/clock.h"
#include "base/spin_wait.h"
#include "host/core/scheduling/scheduler.h"

namespace nereid::core {

DynamicBatcher::DynamicBatcher(const DynamicBatching& config, int64_t max_batch_size,
                               QueueTimeoutThread* timeout_thread,
                               std::unique_ptr<BatchStrategy> strategy)
    : strategy_(std::move(strategy)),
      rules_(config, max_batch_size, strategy_.get()),
      max_batch_size_(static_cast<size_t>(std::max<int64_t>(max_batch_size, 1))),
      timeout_thread_(timeout_thread),
      preserve_ordering_(config.preserve_ordering),
      queue_(config) {}

Status DynamicBatcher::Enqueue(InferRequest* request) {
  std::condition_variable* waiter = nullptr;
  {
    std::lock_guard lock(mutex_);
    request->queue_start_ns = SteadyNowNs();
    if (stopped_) return StoppedError(*request);
    NEREID_RETURN_IF_ERROR(queue_.Push(request, request->queue_start_ns));
    if (preserve_ordering_)
      request->sink()->set_reorderer(&reorder_buffer_, reorder_buffer_.TakeTicket());
    if (request->queue_deadline_ns != 0) ScheduleTimeoutCheck();
    UpdatePending();
    num_missing_ -= request->batch_size();
    waiter = FindConditionToNotify();
  }
  if (waiter != nullptr) waiter->notify_one();
  return Status::Ok();
}

// While one instance thread waits for its batch to fill, new requests belong to that batch. The
// thread is notified only if enough requests have arrived to change its decision. Otherwise one
// thread per full batch suffices, counting threads that were already notified or that are polling.
std::condition_variable* DynamicBatcher::FindConditionToNotify() {
  if (is_filling_) return num_missing_ <= 0 ? &batch_changed_ : nullptr;
  if (delay_.ShouldDelay(queue_.size())) return nullptr;
  const size_t num_batches = (queue_.size() + max_batch_size_ - 1) / max_batch_size_;
  if (num_woken_ >= num_idle_ || num_woken_ + num_spinning_ >= num_batches) return nullptr;
  ++num_woken_;
  return &work_arrived_;
}

void DynamicBatcher::NotifyNext() {
  if (std::condition_variable* const waiter = FindConditionToNotify()) waiter->notify_one();
}

void DynamicBatcher::WaitIdle(size_t instance, std::unique_lock<std::mutex>& lock) {
  thread_local SpinWait spin;
  if (!is_filling_ && queue_.empty() && spin.ShouldSpin()) {
    ++num_spinning_;
    lock.unlock();
    spin.SpinUntil([this] { return num_pending() != 0; });
    lock.lock();
    --num_spinning_;
    if (stopped_ || retired_.Contains(instance) || !HasNothingToTake()) return;
  }
  ++num_idle_;
  spin.Sleep([&] { work_arrived_.wait(lock); });
  --num_idle_;
  if (num_woken_ > 0) --num_woken_;
}

void DynamicBatcher::WaitToFill(std::unique_lock<std::mutex>& lock,
                                const BatchRules::Decision& decision) {
  is_filling_ = true;
  num_missing_ = decision.num_missing;
  batch_changed_.wait_until(lock, SteadyDeadline(decision.wait_until_ns));
  is_filling_ = false;
}

void DynamicBatcher::ReconsiderBatch() {
  UpdatePending();
  if (is_filling_) batch_changed_.notify_one();
}

bool DynamicBatcher::Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) {
  batch->clear();
  std::vector<InferRequest*> expired;
  std::unique_lock lock(mutex_);
  while (true) {
    const uint64_t now_ns = SteadyNowNs();
    queue_.TakeExpired(now_ns, &expired);
    if (!expired.empty()) {
      ReconsiderBatch();
      lock.unlock();
      for (InferRequest* request : expired) FailTimedOut(request);
      expired.clear();
      lock.lock();
      continue;
    }
    if (retired_.Contains(instance)) {
      if (!queue_.empty()) NotifyNext();  // the notification may have been for these requests
      return false;
    }
    if (stopped_ && queue_.empty()) return false;
    const bool is_blocked = HasNothingToTake();
    if (is_blocked && !IsBlocking(mode)) return false;
    if (is_blocked) {
      WaitIdle(instance, lock);
      continue;
    }
    const BatchRules::Decision decision = rules_.Decide(queue_, now_ns);
    if (decision.wait_until_ns == 0 || stopped_) {
      if (IsPeek(mode)) {
        NotifyNext();  // another instance may be able to take the batch sooner
        return true;
      }
      PopBatch(decision.num_requests, batch);
      return true;
    }
    if (!IsBlocking(mode)) return false;
    WaitToFill(lock, decision);
  }
}

void DynamicBatcher::PopBatch(size_t num_requests, std::vector<InferRequest*>* batch) {
  while (batch->size() < num_requests) {
    InferRequest* request = queue_.First();
    queue_.Remove(request);
    batch->push_back(request);
  }
  UpdatePending();
  if (!queue_.empty()) NotifyNext();
}

void DynamicBatcher::OnCancelled(InferRequest* request) {
  {
    std::lock_guard lock(mutex_);
    if (!queue_.Remove(request)) return;
    ReconsiderBatch();
  }
  timeout_thread_->Post([request] { FailCancelled(request); });
}

void DynamicBatcher::ScheduleTimeoutCheck() {
  const uint64_t deadline_ns = queue_.earliest_deadline_ns();
  if (deadline_ns >= next_timeout_check_ns_) return;
  next_timeout_check_ns_ = deadline_ns;
  timeout_thread_->PostAt(deadline_ns, [weak = weak_from_this(), deadline_ns] {
    if (const auto self = weak.lock()) self->HandleTimeouts(deadline_ns);
  });
}

void DynamicBatcher::HandleTimeouts(uint64_t deadline_ns) {
  std::vector<InferRequest*> expired;
  {
    std::lock_guard lock(mutex_);
    if (deadline_ns != next_timeout_check_ns_) return;  // an earlier check has replaced this one
    next_timeout_check_ns_ = UINT64_MAX;
    queue_.TakeExpired(SteadyNowNs(), &expired);
    ReconsiderBatch();
    if (queue_.earliest_deadline_ns() != UINT64_MAX) ScheduleTimeoutCheck();
  }
  for (InferRequest* request : expired) FailTimedOut(request);
}

void DynamicBatcher::RetireInstance(size_t instance) {
  {
    std::lock_guard lock(mutex_);
    retired_.Add(instance);
  }
  work_arrived_.notify_all();
  batch_changed_.notify_all();
}

void DynamicBatcher::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    delay_.End();
  }
  work_arrived_.notify_all();
  batch_changed_.notify_all();
}

}  // namespace nereid::core
