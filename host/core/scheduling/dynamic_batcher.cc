#include "host/core/scheduling/dynamic_batcher.h"

#include <algorithm>

#include "base/clock.h"
#include "base/spin_wait.h"
#include "host/core/scheduling/queue_errors.h"

namespace nereid {

DynamicBatcher::DynamicBatcher(const DynamicBatching& config, int64_t max_batch_size,
                               QueueAttendant* attendant, std::unique_ptr<BatchStrategy> strategy)
    : strategy_(std::move(strategy)),
      rules_(config, max_batch_size, strategy_.get()),
      max_batch_size_(static_cast<size_t>(std::max<int64_t>(max_batch_size, 1))),
      attendant_(attendant),
      preserve_ordering_(config.preserve_ordering),
      queue_(config) {}

Status DynamicBatcher::Enqueue(InferRequest* request) {
  std::condition_variable* sleeper = nullptr;
  {
    std::lock_guard lock(mutex_);
    request->queue_start_ns = SteadyNowNs();
    if (stopped_) return StoppedError(*request);
    NEREID_RETURN_IF_ERROR(queue_.Push(request, request->queue_start_ns));
    if (preserve_ordering_) request->sink()->set_gate(&gate_, gate_.TakeTicket());
    if (request->queue_deadline_ns != 0) ScheduleAttendance();
    UpdatePending();
    num_missing_ -= request->batch_size();
    sleeper = WhomToWake();
  }
  if (sleeper != nullptr) sleeper->notify_one();
  return Status::Ok();
}

// What comes while one waits for its batch to fill is its own, and it need not hear of arrivals
// that change nothing. Otherwise one instance a full batch is enough, those that were woken and
// those that spin included; the rest keep their sleep.
std::condition_variable* DynamicBatcher::WhomToWake() {
  if (forming_) return num_missing_ <= 0 ? &filling_ : nullptr;
  if (delay_.Holds(queue_.size())) return nullptr;
  const size_t num_batches = (queue_.size() + max_batch_size_ - 1) / max_batch_size_;
  if (num_woken_ >= num_idle_ || num_woken_ + num_spinning_ >= num_batches) return nullptr;
  ++num_woken_;
  return &idle_;
}

void DynamicBatcher::WakeAnother() {
  if (std::condition_variable* const sleeper = WhomToWake()) sleeper->notify_one();
}

void DynamicBatcher::WaitIdle(size_t instance, std::unique_lock<std::mutex>& lock) {
  thread_local SpinWait spin;
  if (!forming_ && queue_.empty() && spin.MayPay()) {
    ++num_spinning_;
    lock.unlock();
    spin.Until([this] { return num_pending() != 0; });
    lock.lock();
    --num_spinning_;
    if (stopped_ || retired_.Contains(instance) || !IsHeld()) return;
  }
  ++num_idle_;
  spin.Rest([&] { idle_.wait(lock); });
  --num_idle_;
  if (num_woken_ > 0) --num_woken_;
}

void DynamicBatcher::WaitToFill(std::unique_lock<std::mutex>& lock,
                                const BatchRules::Decision& decision) {
  forming_ = true;
  num_missing_ = decision.num_missing;
  filling_.wait_until(lock, SteadyDeadline(decision.wait_until_ns));
  forming_ = false;
}

void DynamicBatcher::DecideAnew() {
  UpdatePending();
  if (forming_) filling_.notify_one();
}

bool DynamicBatcher::Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) {
  batch->clear();
  std::vector<InferRequest*> expired;
  std::unique_lock lock(mutex_);
  while (true) {
    const uint64_t now_ns = SteadyNowNs();
    queue_.TakeExpired(now_ns, &expired);
    if (!expired.empty()) {
      DecideAnew();
      lock.unlock();
      for (InferRequest* request : expired) FailTimedOut(request);
      expired.clear();
      lock.lock();
      continue;
    }
    if (retired_.Contains(instance)) {
      if (!queue_.empty()) WakeAnother();  // it may have been called for them
      return false;
    }
    if (stopped_ && queue_.empty()) return false;
    const bool nothing = IsHeld();
    if (nothing && !Waits(mode)) return false;
    if (nothing) {
      WaitIdle(instance, lock);
      continue;
    }
    const BatchRules::Decision decision = rules_.Decide(queue_, now_ns);
    if (decision.wait_until_ns == 0 || stopped_) {
      if (Leaves(mode)) {
        WakeAnother();  // it may be able to take it sooner
        return true;
      }
      PopBatch(decision.num_requests, batch);
      return true;
    }
    if (!Waits(mode)) return false;
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
  if (!queue_.empty()) WakeAnother();
}

void DynamicBatcher::OnCancelled(InferRequest* request) {
  {
    std::lock_guard lock(mutex_);
    if (!queue_.Remove(request)) return;
    DecideAnew();
  }
  attendant_->Post([request] { FailCancelled(request); });
}

void DynamicBatcher::ScheduleAttendance() {
  const uint64_t deadline_ns = queue_.earliest_deadline_ns();
  if (deadline_ns >= next_attendance_ns_) return;
  next_attendance_ns_ = deadline_ns;
  attendant_->PostAt(deadline_ns, [weak = weak_from_this(), deadline_ns] {
    if (const auto self = weak.lock()) self->AttendTimeouts(deadline_ns);
  });
}

void DynamicBatcher::AttendTimeouts(uint64_t deadline_ns) {
  std::vector<InferRequest*> expired;
  {
    std::lock_guard lock(mutex_);
    if (deadline_ns != next_attendance_ns_) return;  // an earlier one has taken its place
    next_attendance_ns_ = UINT64_MAX;
    queue_.TakeExpired(SteadyNowNs(), &expired);
    DecideAnew();
    if (queue_.earliest_deadline_ns() != UINT64_MAX) ScheduleAttendance();
  }
  for (InferRequest* request : expired) FailTimedOut(request);
}

void DynamicBatcher::RetireInstance(size_t instance) {
  {
    std::lock_guard lock(mutex_);
    retired_.Add(instance);
  }
  idle_.notify_all();
  filling_.notify_all();
}

void DynamicBatcher::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    delay_.End();
  }
  idle_.notify_all();
  filling_.notify_all();
}

}  // namespace nereid
