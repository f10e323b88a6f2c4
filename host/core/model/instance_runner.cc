#include "host/core/model/instance_runner.h"

#include <pthread.h>

#include <system_error>
#include <utility>
#include <vector>

namespace nereid {

InstanceRunner::InstanceRunner(Instance* instance, size_t index, Scheduler* scheduler,
                               std::unique_ptr<RateLimiter::Member> limited,
                               std::shared_ptr<std::mutex> turn, std::function<Status()> warm_up,
                               std::shared_future<bool> admitted, std::function<void()> over)
    : instance_(instance),
      index_(index),
      scheduler_(scheduler),
      limited_(std::move(limited)),
      turn_(std::move(turn)),
      warm_up_fn_(std::move(warm_up)),
      admitted_(std::move(admitted)),
      over_(std::move(over)),
      warm_up_(warm_up_fn_ != nullptr || !instance->spec().binding.empty()
                   ? std::packaged_task<Status()>([this] { return WarmUp(); })
                   : std::packaged_task<Status()>()),
      warm_(warm_up_.valid() ? warm_up_.get_future() : std::future<Status>()) {}

Status InstanceRunner::Start() {
  if (thread_.joinable()) return Status::Ok();
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return UnavailableError("instance '", instance_->spec().name,
                            "': cannot start its thread: ", error.what());
  }
  return Status::Ok();
}

InstanceRunner::~InstanceRunner() {
  if (thread_.joinable()) thread_.join();
}

void InstanceRunner::Run() {
  constexpr size_t kMaxThreadName = 15;
  pthread_setname_np(pthread_self(), instance_->spec().name.substr(0, kMaxThreadName).c_str());
  placement_.Apply();  // whoever sends the first request starts the thread
  if (warm_up_.valid()) warm_up_();
  if (!admitted_.valid() || admitted_.get()) Serve();
  over_();
}

Status InstanceRunner::WarmUp() {
  NEREID_RETURN_IF_ERROR(BindThread(instance_->spec().binding));
  return warm_up_fn_ == nullptr ? Status::Ok() : warm_up_fn_();
}

void InstanceRunner::Serve() {
  if (limited_ != nullptr) return ServeLimited();
  if (turn_ != nullptr) return ServeByTurns();
  std::vector<InferRequest*> batch;
  while (scheduler_->TakeBatch(index_, &batch)) {
    const bool in_turn = scheduler_->TakeInTurn(index_, instance_->MostInTurn(), &batch);
    instance_->Hold(batch);
    in_turn ? instance_->ExecuteInTurn(batch) : instance_->Execute(batch);
  }
}

// Resources are taken only when there is work, and the batch is formed only when they are there.
// They are held for an execution, as in Triton, whatever a backend goes on to do with its requests.
void InstanceRunner::ServeLimited() {
  std::vector<InferRequest*> batch;
  while (scheduler_->Take(index_, TakeMode::kPeek, &batch)) {
    limited_->Acquire();
    bool has_more = true;
    while (has_more && scheduler_->Take(index_, TakeMode::kTry, &batch)) {
      instance_->Hold(batch);
      instance_->Execute(batch);
      limited_->CountRun();
      has_more = scheduler_->Take(index_, TakeMode::kLook, &batch);
      if (has_more) limited_->AcquireAgain();
    }
    limited_->Release();
  }
}

// The turn is awaited before the batch is formed: until then it may grow.
void InstanceRunner::ServeByTurns() {
  std::vector<InferRequest*> batch;
  while (scheduler_->Take(index_, TakeMode::kPeek, &batch)) {
    std::lock_guard turn(*turn_);
    if (!scheduler_->Take(index_, TakeMode::kTry, &batch)) continue;
    instance_->Hold(batch);
    instance_->Execute(batch);
  }
}

}  // namespace nereid
