// The scheduler of models without batching: first in, first out, one request per execution. [any
// thread; Take: instance threads]
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "host/core/scheduling/queue_timeout_thread.h"
#include "host/core/scheduling/request_list.h"
#include "host/core/scheduling/scheduler.h"

namespace nereid::core {

class FifoScheduler final : public Scheduler {
 public:
  // `timeout_thread` must outlive the scheduler.
  FifoScheduler(size_t num_instances, QueueTimeoutThread* timeout_thread)
      : timeout_thread_(timeout_thread), num_instances_(num_instances) {}

  Status Enqueue(InferRequest* request) override;
  bool Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) override;
  bool TakeForSerialExecution(size_t instance, size_t max_requests,
                              std::vector<InferRequest*>* batch) override;
  void OnCancelled(InferRequest* request) override;
  void AddInstance() override;
  void RetireInstance(size_t instance) override;
  void Stop() override;
  uint64_t num_pending() const override { return num_pending_.load(std::memory_order_relaxed); }

 private:
  QueueTimeoutThread* const timeout_thread_;
  std::atomic<uint64_t> num_pending_{0};
  std::mutex mutex_;  // guards what follows
  std::condition_variable arrived_;
  RequestList queue_;
  RetiredInstances retired_;
  size_t num_instances_;     // instances that are not retired
  size_t num_waiting_ = 0;   // instance threads waiting on arrived_
  size_t num_spinning_ = 0;  // instance threads that poll before they wait
  bool stopped_ = false;
};

}  // namespace nereid::core
