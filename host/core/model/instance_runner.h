// The thread of an instance: warm up, then take a batch, execute, again. [load thread starts it,
// reaper thread ends it]
#pragma once

#include <functional>
#include <future>
#include <thread>

#include "backend/instance.h"
#include "scheduling/scheduler.h"

namespace nereid {

class InstanceRunner {
 public:
  // `warm_up` runs first on the instance's thread. `index`: which instance the scheduler serves.
  // `instance` and `scheduler` outlive the runner.
  InstanceRunner(Instance* instance, size_t index, Scheduler* scheduler,
                 std::function<Status()> warm_up);
  // Joins; the scheduler must have been stopped.
  ~InstanceRunner();
  InstanceRunner(const InstanceRunner&) = delete;
  InstanceRunner& operator=(const InstanceRunner&) = delete;

  // Waits for the outcome of warm_up. Once.
  Status WaitWarm() { return warm_.get(); }

 private:
  void Run();

  Instance* const instance_;
  const size_t index_;
  Scheduler* const scheduler_;
  std::packaged_task<Status()> warm_up_;
  std::future<Status> warm_;
  std::thread thread_;
};

}  // namespace nereid
