// The scheduler of models with dynamic_batching. Each instance thread forms its own batch in Take.
// While one thread waits for its batch to fill, the other threads wait for that thread. [any
// thread; Take: instance threads]
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/scheduling/batch_rules.h"
#include "host/core/scheduling/delayed_start.h"
#include "host/core/scheduling/priority_queue.h"
#include "host/core/scheduling/queue_timeout_thread.h"
#include "host/core/scheduling/response_reorder_buffer.h"
#include "host/core/scheduling/scheduler.h"

namespace nereid::core {

class DynamicBatcher final : public Scheduler, public std::enable_shared_from_this<DynamicBatcher> {
 public:
  // `timeout_thread` must outlive the scheduler.
  DynamicBatcher(const DynamicBatching& config, int64_t max_batch_size,
                 QueueTimeoutThread* timeout_thread,
                 std::unique_ptr<BatchStrategy> strategy = nullptr);

  Status Enqueue(InferRequest* request) override;
  bool Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) override;
  void OnCancelled(InferRequest* request) override;
  void AddInstance() override {}
  void RetireInstance(size_t instance) override;
  void Stop() override;
  uint64_t num_pending() const override { return num_pending_.load(std::memory_order_relaxed); }

 private:
  // Fails the requests that have timed out. Needed where all instances are busy. [timeout thread]
  void HandleTimeouts(uint64_t deadline_ns);
  // Schedules HandleTimeouts for the earliest deadline of the queue. Requires mutex_.
  void ScheduleTimeoutCheck();
  void PopBatch(size_t num_requests, std::vector<InferRequest*>* batch);
  // Waits until the state may have changed for the calling instance thread.
  void WaitIdle(size_t instance, std::unique_lock<std::mutex>& lock);
  void WaitToFill(std::unique_lock<std::mutex>& lock, const BatchRules::Decision& decision);
  // The queue lost requests or changed their order: a thread that waits for its batch to fill must
  // decide again. Requires mutex_.
  void ReconsiderBatch();
  // True if no batch can be taken at present. Requires mutex_.
  bool HasNothingToTake() {
    return queue_.empty() || is_filling_ || delay_.ShouldDelay(queue_.size());
  }
  // The condition variable to notify for the current queue; null: none. Requires mutex_, like
  // NotifyNext.
  std::condition_variable* FindConditionToNotify();
  void NotifyNext();
  void UpdatePending() { num_pending_.store(queue_.size(), std::memory_order_relaxed); }

  const std::unique_ptr<BatchStrategy> strategy_;  // null: no custom batching library
  const BatchRules rules_;
  const size_t max_batch_size_;
  QueueTimeoutThread* const timeout_thread_;
  const bool preserve_ordering_;
  ResponseReorderBuffer reorder_buffer_;
  std::atomic<uint64_t> num_pending_{0};
  std::mutex mutex_;                       // guards what follows
  std::condition_variable work_arrived_;   // waited on by idle instance threads
  std::condition_variable batch_changed_;  // waited on by the thread whose batch is filling
  PriorityQueue queue_;
  uint64_t next_timeout_check_ns_ = UINT64_MAX;
  RetiredInstances retired_;
  size_t num_idle_ = 0;      // instance threads waiting on work_arrived_
  size_t num_woken_ = 0;     // of these, threads that were notified and have not resumed yet
  size_t num_spinning_ = 0;  // instance threads that poll before they wait
  bool is_filling_ = false;  // one thread waits on batch_changed_
  int64_t num_missing_ = 0;  // Decision::num_missing minus what has arrived since
  DelayedStart delay_;
  bool stopped_ = false;
};

}  // namespace nereid::core
