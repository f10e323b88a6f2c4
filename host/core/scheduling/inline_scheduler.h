// The scheduler of models whose backend supports inline execution: each request is executed on the
// thread that enqueues it, so there is no queue. [any thread; Take: instance threads]
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "host/core/scheduling/scheduler.h"

namespace nereid::core {

class InlineScheduler final : public Scheduler {
 public:
  // `execute` takes ownership of the request and never blocks.
  explicit InlineScheduler(std::function<void(InferRequest*)> execute)
      : execute_(std::move(execute)) {}

  Status Enqueue(InferRequest* request) override;
  // Never yields a batch. When blocking, returns false once the instance is retired or the
  // scheduler is stopped.
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

// stopped_ is not checked: a request keeps its model alive, and a model stops its scheduler last.
inline Status InlineScheduler::Enqueue(InferRequest* request) {
  request->queue_start_ns = SteadyNowNs();
  execute_(request);
  return Status::Ok();
}

inline bool InlineScheduler::Take(size_t instance, TakeMode mode,
                                  std::vector<InferRequest*>* batch) {
  batch->clear();
  if (!IsBlocking(mode)) return false;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || retired_.Contains(instance); });
  return false;
}

inline void InlineScheduler::RetireInstance(size_t instance) {
  {
    std::lock_guard lock(mutex_);
    retired_.Add(instance);
  }
  changed_.notify_all();
}

inline void InlineScheduler::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

}  // namespace nereid::core
