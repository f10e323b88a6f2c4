#include "host/core/model/instance_thread.h"

#include <pthread.h>

#include <system_error>
#include <utility>
#include <vector>

#include "base/thread.h"

namespace nereid::core {

InstanceThread::InstanceThread(Instance* instance, size_t index, Scheduler* scheduler,
                               std::unique_ptr<RateLimiter::RegisteredInstance> rate_limited,
                               std::shared_ptr<std::mutex> device_mutex,
                               std::function<Status()> warm_up, std::shared_future<bool> may_serve,
                               std::function<void()> on_end)
    : instance_(instance),
      index_(index),
      scheduler_(scheduler),
      rate_limited_(std::move(rate_limited)),
      device_mutex_(std::move(device_mutex)),
      warm_up_fn_(std::move(warm_up)),
      may_serve_(std::move(may_serve)),
      on_end_(std::move(on_end)),
      warm_up_(warm_up_fn_ != nullptr || !instance->spec().binding.empty()
                   ? std::packaged_task<Status()>([this] { return WarmUp(); })
                   : std::packaged_task<Status()>()),
      warm_up_status_(warm_up_.valid() ? warm_up_.get_future() : std::future<Status>()) {}

Status InstanceThread::Start() {
  if (thread_.joinable()) return Status::Ok();
  try {
    thread_ = StartThread([this] { Run(); });
  } catch (const std::system_error& error) {
    return UnavailableError("instance '", instance_->spec().name,
                            "': cannot start its thread: ", error.what());
  }
  return Status::Ok();
}

InstanceThread::~InstanceThread() {
  if (thread_.joinable()) thread_.join();
}

void InstanceThread::Run() {
  constexpr size_t kMaxThreadName = 15;
  pthread_setname_np(pthread_self(), instance_->spec().name.substr(0, kMaxThreadName).c_str());
  placement_.Apply();  // the sender of the first request may start this thread
  if (warm_up_.valid()) warm_up_();
  if (!may_serve_.valid() || may_serve_.get()) Serve();
  on_end_();
}

Status InstanceThread::WarmUp() {
  NEREID_RETURN_IF_ERROR(BindThread(instance_->spec().binding));
  return warm_up_fn_ == nullptr ? Status::Ok() : warm_up_fn_();
}

void InstanceThread::Serve() {
  if (rate_limited_ != nullptr) return ServeRateLimited();
  if (device_mutex_ != nullptr) return ServeExclusively();
  std::vector<InferRequest*> batch;
  while (scheduler_->TakeBatch(index_, &batch)) {
    const bool is_serial =
        scheduler_->TakeForSerialExecution(index_, instance_->MaxSerialRequests(), &batch);
    instance_->TrackUntilRelease(batch);
    is_serial ? instance_->ExecuteSerially(batch) : instance_->Execute(batch);
  }
}

// Resources are acquired only when there is work, and the batch is formed after they are acquired.
// As in Triton, they are held for one execution, even if the backend keeps the requests longer.
void InstanceThread::ServeRateLimited() {
  std::vector<InferRequest*> batch;
  while (scheduler_->Take(index_, TakeMode::kWaitPeek, &batch)) {
    rate_limited_->Acquire();
    bool has_more = true;
    while (has_more && scheduler_->Take(index_, TakeMode::kTry, &batch)) {
      instance_->TrackUntilRelease(batch);
      instance_->Execute(batch);
      rate_limited_->CountExecution();
      has_more = scheduler_->Take(index_, TakeMode::kTryPeek, &batch);
      if (has_more) rate_limited_->Reacquire();
    }
    rate_limited_->Release();
  }
}

// The mutex is locked before the batch is formed, because the batch may grow until then.
void InstanceThread::ServeExclusively() {
  std::vector<InferRequest*> batch;
  while (scheduler_->Take(index_, TakeMode::kWaitPeek, &batch)) {
    std::lock_guard lock(*device_mutex_);
    if (!scheduler_->Take(index_, TakeMode::kTry, &batch)) continue;
    instance_->TrackUntilRelease(batch);
    instance_->Execute(batch);
  }
}

}  // namespace nereid::core
