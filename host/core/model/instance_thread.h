// The thread of an instance: runs the warm-up, then takes and executes batches. The thread of a
// model without warm-up starts with the first request, because threads are most of the load cost of
// an instance. [created on the load thread, destroyed on the reaper thread]
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "base/host_binding.h"
#include "host/core/backend/instance.h"
#include "host/core/scheduling/rate_limiter.h"
#include "host/core/scheduling/scheduler.h"

namespace nereid::core {

class InstanceThread {
 public:
  // `instance` and `scheduler` must outlive this object.
  //   index         of the instance in the scheduler
  //   rate_limited  the instance's registration in the rate limiter; null: no rate limiting
  //   device_mutex  shared by instances that must not execute concurrently; null: no restriction
  //   warm_up       runs first on the thread; may be empty
  //   may_serve     awaited after the warm-up; false: the instance never serves; invalid: it serves
  //                 at once
  //   on_end        called last on the thread
  InstanceThread(Instance* instance, size_t index, Scheduler* scheduler,
                 std::unique_ptr<RateLimiter::RegisteredInstance> rate_limited,
                 std::shared_ptr<std::mutex> device_mutex, std::function<Status()> warm_up,
                 std::shared_future<bool> may_serve, std::function<void()> on_end);
  // Joins the thread. The scheduler must have been stopped, or `may_serve` been false.
  ~InstanceThread();
  InstanceThread(const InstanceThread&) = delete;
  InstanceThread& operator=(const InstanceThread&) = delete;

  // True if the thread has work before the first batch, so that it must be started at load.
  bool HasStartupWork() const { return warm_up_.valid() || may_serve_.valid(); }
  // Starts the thread if it does not run yet. UNAVAILABLE if the system cannot create a thread. One
  // caller at a time.
  Status Start();
  // Waits for the result of the warm-up. At most once, after Start.
  Status WaitForWarmup() { return warm_up_.valid() ? warm_up_status_.get() : Status::Ok(); }
  size_t index() const { return index_; }

 private:
  void Run();
  Status WarmUp();
  void Serve();
  void ServeRateLimited();
  void ServeExclusively();

  Instance* const instance_;
  const size_t index_;
  Scheduler* const scheduler_;
  const std::unique_ptr<RateLimiter::RegisteredInstance> rate_limited_;
  const std::shared_ptr<std::mutex> device_mutex_;
  const std::function<Status()> warm_up_fn_;
  const std::shared_future<bool> may_serve_;
  const std::function<void()> on_end_;
  const ThreadPlacement placement_;  // cores, memory nodes and blocked signals of the load thread
  std::packaged_task<Status()> warm_up_;  // invalid: no warm-up
  std::future<Status> warm_up_status_;
  std::thread thread_;
};

}  // namespace nereid::core
