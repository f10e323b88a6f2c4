// The thread of an instance: warm up, then take a batch, execute, again. A model that nobody asks
// has none: threads are most of what an instance costs at load. [load thread makes it, reaper
// thread ends it]
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

namespace nereid {

class InstanceRunner {
 public:
  // `limited`: its membership in the rate limiter, null where there is none. `warm_up`, if any,
  // runs first on the instance's thread, `over` last. `index`: which instance the scheduler serves.
  // `turn`: instances that share it never execute at once; null: none. `admitted`: awaited after
  // the warm-up; false: the instance never serves; not valid: it serves at once. `instance` and
  // `scheduler` outlive the runner.
  InstanceRunner(Instance* instance, size_t index, Scheduler* scheduler,
                 std::unique_ptr<RateLimiter::Member> limited, std::shared_ptr<std::mutex> turn,
                 std::function<Status()> warm_up, std::shared_future<bool> admitted,
                 std::function<void()> over);
  // Joins; the scheduler must have been stopped, or the instance not admitted.
  ~InstanceRunner();
  InstanceRunner(const InstanceRunner&) = delete;
  InstanceRunner& operator=(const InstanceRunner&) = delete;

  // Something comes before the first batch, and is not to wait for it.
  bool HasPrelude() const { return warm_up_.valid() || admitted_.valid(); }
  // Starts the thread, unless that was done. UNAVAILABLE when there is none to be had. One caller
  // at a time.
  Status Start();
  // Waits for the outcome of warm_up. Once, after Start.
  Status WaitWarm() { return warm_up_.valid() ? warm_.get() : Status::Ok(); }
  size_t index() const { return index_; }

 private:
  void Run();
  Status WarmUp();
  void Serve();
  void ServeLimited();
  void ServeByTurns();

  Instance* const instance_;
  const size_t index_;
  Scheduler* const scheduler_;
  const std::unique_ptr<RateLimiter::Member> limited_;
  const std::shared_ptr<std::mutex> turn_;
  const std::function<Status()> warm_up_fn_;
  const std::shared_future<bool> admitted_;
  const std::function<void()> over_;
  const ThreadPlacement placement_;       // of the load thread
  std::packaged_task<Status()> warm_up_;  // not valid: nothing to do
  std::future<Status> warm_;
  std::thread thread_;
};

}  // namespace nereid
