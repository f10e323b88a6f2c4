// The scheduler of models without batching: first come, first served, one request an execution.
// [any thread; Take: instance threads]
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "host/core/scheduling/queue_attendant.h"
#include "host/core/scheduling/request_list.h"
#include "host/core/scheduling/retired_instances.h"
#include "host/core/scheduling/scheduler.h"

namespace nereid {

class DirectScheduler final : public Scheduler {
 public:
  // `attendant` outlives the scheduler.
  DirectScheduler(size_t num_instances, QueueAttendant* attendant)
      : attendant_(attendant), num_instances_(num_instances) {}

  Status Enqueue(InferRequest* request) override;
  bool Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) override;
  bool TakeInTurn(size_t instance, size_t most, std::vector<InferRequest*>* batch) override;
  void OnCancelled(InferRequest* request) override;
  void AddInstance() override;
  void RetireInstance(size_t instance) override;
  void Stop() override;
  uint64_t num_pending() const override { return num_pending_.load(std::memory_order_relaxed); }

 private:
  QueueAttendant* const attendant_;
  std::atomic<uint64_t> num_pending_{0};
  std::mutex mutex_;  // guards what follows
  std::condition_variable arrived_;
  RequestList queue_;
  RetiredInstances retired_;
  size_t num_instances_;     // that take requests
  size_t num_waiting_ = 0;   // instance threads inside arrived_
  size_t num_spinning_ = 0;  // instance threads that look for work before they wait
  bool stopped_ = false;
};

}  // namespace nereid
