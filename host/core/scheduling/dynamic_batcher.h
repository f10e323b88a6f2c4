// The scheduler of models with dynamic_batching. The instance thread that asks for work forms the
// batch itself; while one waits for a batch to fill, the others wait for it. [any thread;
// Take: instance threads]
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/scheduling/batch_rules.h"
#include "host/core/scheduling/batch_strategy.h"
#include "host/core/scheduling/delayed_start.h"
#include "host/core/scheduling/ordered_gate.h"
#include "host/core/scheduling/priority_queue.h"
#include "host/core/scheduling/queue_attendant.h"
#include "host/core/scheduling/retired_instances.h"
#include "host/core/scheduling/scheduler.h"

namespace nereid {

class DynamicBatcher final : public Scheduler, public std::enable_shared_from_this<DynamicBatcher> {
 public:
  // `attendant` outlives the scheduler.
  DynamicBatcher(const DynamicBatching& config, int64_t max_batch_size, QueueAttendant* attendant,
                 std::unique_ptr<BatchStrategy> strategy = nullptr);

  Status Enqueue(InferRequest* request) override;
  bool Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) override;
  void OnCancelled(InferRequest* request) override;
  void AddInstance() override {}
  void RetireInstance(size_t instance) override;
  void Stop() override;
  uint64_t num_pending() const override { return num_pending_.load(std::memory_order_relaxed); }

 private:
  // Answers what timed out; called by the attendant when all instances may be busy.
  void AttendTimeouts(uint64_t deadline_ns);
  // Has AttendTimeouts called when the first deadline passes. Requires mutex_.
  void ScheduleAttendance();
  void PopBatch(size_t num_requests, std::vector<InferRequest*>* batch);
  // Until something came that may concern the caller.
  void WaitIdle(size_t instance, std::unique_lock<std::mutex>& lock);
  void WaitToFill(std::unique_lock<std::mutex>& lock, const BatchRules::Decision& decision);
  // The queue lost requests, or their order changed: who waits for a batch to fill decides anew.
  // Requires mutex_.
  void DecideAnew();
  // Whether the queue has nothing to give, for now. Requires mutex_.
  bool IsHeld() { return queue_.empty() || forming_ || delay_.Holds(queue_.size()); }
  // Whose sleep ends now that the queue is as it is; null: nobody's. Requires mutex_, as the next.
  std::condition_variable* WhomToWake();
  void WakeAnother();
  void UpdatePending() { num_pending_.store(queue_.size(), std::memory_order_relaxed); }

  const std::unique_ptr<BatchStrategy> strategy_;  // null: none
  const BatchRules rules_;
  const size_t max_batch_size_;
  QueueAttendant* const attendant_;
  const bool preserve_ordering_;
  OrderedGate gate_;
  std::atomic<uint64_t> num_pending_{0};
  std::mutex mutex_;                 // guards what follows
  std::condition_variable idle_;     // of those that wait for a request
  std::condition_variable filling_;  // of the one that waits for its batch to fill
  PriorityQueue queue_;
  uint64_t next_attendance_ns_ = UINT64_MAX;
  RetiredInstances retired_;
  size_t num_idle_ = 0;      // instance threads inside idle_
  size_t num_woken_ = 0;     // of them, those that were called and did not come yet
  size_t num_spinning_ = 0;  // instance threads that look for work before they wait
  bool forming_ = false;     // one is inside filling_
  int64_t num_missing_ = 0;  // as in its Decision, less what came since
  DelayedStart delay_;
  bool stopped_ = false;
};

}  // namespace nereid
