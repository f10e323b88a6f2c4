// The scheduler of models whose backend executes wherever it is called: a request is executed on
// the thread that brings it, and nothing waits. [any thread; Take: instance threads]
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "host/core/scheduling/retired_instances.h"
#include "host/core/scheduling/scheduler.h"

namespace nereid {

class InlineScheduler final : public Scheduler {
 public:
  // `execute` takes the request over, and never waits.
  explicit InlineScheduler(std::function<void(InferRequest*)> execute)
      : execute_(std::move(execute)) {}

  Status Enqueue(InferRequest* request) override;
  // Returns false once the instance is retired or all is stopped.
  bool Take(size_t instance, TakeMode mode, std::vector<InferRequest*>* batch) override;
  void OnCancelled(InferRequest*) override {}
  void AddInstance() override {}
  void RetireInstance(size_t instance) override;
  void Stop() override;
  uint64_t num_pending() const override { return 0; }

 private:
  const std::function<void(InferRequest*)> execute_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  RetiredInstances retired_;
  bool stopped_ = false;
};

}  // namespace nereid
