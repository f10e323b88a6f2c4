#include "scheduling/dynamic_batcher.h"

#include "base/clock.h"
#include "scheduling/queue_errors.h"

namespace nereid {

DynamicBatcher::DynamicBatcher(const DynamicBatching& config, int64_t max_batch_size,
                               QueueAttendant* attendant, std::unique_ptr<BatchStrategy> strategy)
    : strategy_(std::move(strategy)),
      rules_(config, max_batch_size, strategy_.get()),
      attendant_(attendant),
      preserve_ordering_(config.preserve_ordering),
      queue_(config) {}

Status DynamicBatcher::Enqueue(InferRequest* request) {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    request->queue_start_ns = SteadyNowNs();
    if (stopped_) return StoppedError(*request);
    NEREID_RETURN_IF_ERROR(queue_.Push(request, request->queue_start_ns));
    if (preserve_ordering_) request->sink()->set_gate(&gate_, gate_.TakeTicket());
    if (request->queue_deadline_ns != 0) ScheduleAttendance();
    UpdatePending();
    wake = num_waiting_ > 0;
  }
  // The one that waits for its batch to fill must hear of every arrival, and it may not be the one
  // that notify_one picks.
  if (wake) changed_.notify_all();
  return Status::Ok();
}

bool DynamicBatcher::Take(size_t, TakeMode mode, std::vector<InferRequest*>* batch) {
  batch->clear();
  std::vector<InferRequest*> expired;
  std::unique_lock lock(mutex_);
  while (true) {
    const uint64_t now_ns = SteadyNowNs();
    queue_.TakeExpired(now_ns, &expired);
    if (!expired.empty()) {
      UpdatePending();
      lock.unlock();
      for (InferRequest* request : expired) FailTimedOut(request);
      expired.clear();
      lock.lock();
      continue;
    }
    if (stopped_ && queue_.empty()) return false;
    const bool nothing = queue_.empty() || forming_;
    if (nothing && mode == TakeMode::kTry) return false;
    if (nothing) {
      ++num_waiting_;
      changed_.wait(lock);
      --num_waiting_;
      continue;
    }
    const BatchRules::Decision decision = rules_.Decide(queue_, now_ns);
    if (decision.wait_until_ns == 0 || stopped_) {
      if (mode == TakeMode::kPeek) {
        if (num_waiting_ > 0) changed_.notify_all();
        return true;
      }
      PopBatch(decision.num_requests, batch);
      return true;
    }
    if (mode == TakeMode::kTry) return false;
    forming_ = true;
    ++num_waiting_;
    changed_.wait_until(lock, SteadyDeadline(decision.wait_until_ns));
    --num_waiting_;
    forming_ = false;
  }
}

void DynamicBatcher::PopBatch(size_t num_requests, std::vector<InferRequest*>* batch) {
  while (batch->size() < num_requests) {
    InferRequest* request = queue_.First();
    queue_.Remove(request);
    batch->push_back(request);
  }
  UpdatePending();
  if (num_waiting_ > 0 && !queue_.empty()) changed_.notify_all();
}

void DynamicBatcher::OnCancelled(InferRequest* request) {
  {
    std::lock_guard lock(mutex_);
    if (!queue_.Remove(request)) return;
    UpdatePending();
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
    UpdatePending();
    if (queue_.earliest_deadline_ns() != UINT64_MAX) ScheduleAttendance();
  }
  for (InferRequest* request : expired) FailTimedOut(request);
}

void DynamicBatcher::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

}  // namespace nereid
