#include "model/instance_runner.h"

#include <pthread.h>

#include <utility>
#include <vector>

namespace nereid {

InstanceRunner::InstanceRunner(Instance* instance, size_t index, Scheduler* scheduler,
                               std::unique_ptr<RateLimiter::Member> limited,
                               std::function<Status()> warm_up)
    : instance_(instance),
      index_(index),
      scheduler_(scheduler),
      limited_(std::move(limited)),
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
  if (limited_ != nullptr) return RunLimited();
  std::vector<InferRequest*> batch;
  while (scheduler_->TakeBatch(index_, &batch)) instance_->Execute(batch);
}

// Resources are taken only when there is work, and the batch is formed only when they are there.
void InstanceRunner::RunLimited() {
  std::vector<InferRequest*> batch;
  while (scheduler_->Take(index_, TakeMode::kPeek, &batch)) {
    limited_->Acquire();
    if (!scheduler_->Take(index_, TakeMode::kTry, &batch)) {
      limited_->Release();  // another instance was faster
      continue;
    }
    limited_->HoldFor(batch);
    instance_->Execute(batch);
  }
}

}  // namespace nereid
