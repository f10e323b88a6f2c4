// The thread of an instance: take a batch, execute, again. [load thread starts it, reaper thread
// ends it]
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "backend/instance.h"
#include "scheduling/scheduler.h"

namespace nereid {

class InstanceRunner {
 public:
  // Both outlive the runner.
  InstanceRunner(Instance* instance, Scheduler* scheduler);
  // Joins; the scheduler must have been stopped.
  ~InstanceRunner();
  InstanceRunner(const InstanceRunner&) = delete;
  InstanceRunner& operator=(const InstanceRunner&) = delete;

 private:
  void Run();

  Instance* const instance_;
  Scheduler* const scheduler_;
  std::thread thread_;
};

}  // namespace nereid
