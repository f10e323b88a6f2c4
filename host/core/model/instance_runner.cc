#include "model/instance_runner.h"

#include <pthread.h>

#include <utility>
#include <vector>

namespace nereid {

InstanceRunner::InstanceRunner(Instance* instance, size_t index, Scheduler* scheduler,
                               std::function<Status()> warm_up)
    : instance_(instance),
      index_(index),
      scheduler_(scheduler),
      warm_up_(std::move(warm_up)),
      warm_(warm_up_.get_future()),
      thread_([this] { Run(); }) {}

InstanceRunner::~InstanceRunner() {
  thread_.join();
}

void InstanceRunner::Run() {
  constexpr size_t kMaxThreadName = 15;
  pthread_setname_np(pthread_self(), instance_->spec().name.substr(0, kMaxThreadName).c_str());
  warm_up_();
  std::vector<InferRequest*> batch;
  while (scheduler_->TakeBatch(index_, &batch)) instance_->Execute(batch);
}

}  // namespace nereid
