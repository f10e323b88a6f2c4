#include "backends/ensemble/runner.h"

#include <utility>

namespace nereid::ensemble {

// A step's call: routes its events to the runner, which it keeps alive.
class Runner::RunningStep : public StepEvents, public std::enable_shared_from_this<RunningStep> {
 public:
  RunningStep(std::shared_ptr<Runner> runner, Execution started)
      : execution(std::move(started)), runner_(std::move(runner)) {}

  void OnResponse(std::span<const TensorRef> outputs, bool is_final) override {
    runner_->OnResponse(*this, outputs, is_final);
    if (is_final) Finish(final_seen_);
  }
  void OnError(Status error, bool is_final) override {
    runner_->OnError(*this, std::move(error), is_final);
    if (is_final) Finish(final_seen_);
  }
  void OnFinal() override {
    runner_->OnResponse(*this, {}, true);
    Finish(final_seen_);
  }
  void OnReleased() override { Finish(released_); }

  Execution execution;             // the dataflow's, under the runner's mutex; its step is constant
  size_t position = 0;             // in Runner::calls_; guarded by its mutex
  std::shared_ptr<StepCall> call;  // likewise; null until Start has returned, and once over
  bool over = false;               // likewise

 private:
  // A call is over when both its final response and its release have come, in any order.
  void Finish(bool& half) {
    bool over;
    {
      std::lock_guard lock(runner_->mutex_);
      over = !std::exchange(half, true) && final_seen_ && released_;
    }
    if (over) runner_->OnCallOver(*this);
  }

  const std::shared_ptr<Runner> runner_;
  bool final_seen_ = false;  // guarded by the runner's mutex, as released_
  bool released_ = false;
};

Runner::Runner(std::shared_ptr<const Plan> plan, std::shared_ptr<InflightLimiter> limiter,
               std::unique_ptr<StepModels> models, std::unique_ptr<ClientRequest> client)
    : plan_(std::move(plan)),
      limiter_(std::move(limiter)),
      models_(std::move(models)),
      client_(std::move(client)),
      dataflow_(*plan_) {}

void Runner::Begin(std::span<const TensorRef> inputs) {
  Effects effects;
  Calls to_cancel;
  {
    std::lock_guard lock(mutex_);
    dataflow_.Begin(inputs, effects);
    to_cancel = Take(effects);
  }
  Act(effects, to_cancel);
}

void Runner::Cancel() {
  Calls to_cancel;
  {
    std::lock_guard lock(mutex_);
    if (answered_) return;
    dataflow_.Abort();
    answered_ = abandoned_ = true;
    outbox_.push_back(
        {.error = CancelledError("ensemble '", plan_->graph->name, "': the request was cancelled"),
         .is_final = true});
    to_cancel = calls_;
  }
  Effects none;
  Act(none, to_cancel);
}

void Runner::OnResponse(RunningStep& running, std::span<const TensorRef> outputs, bool is_final) {
  if (client_->IsCancelled()) Cancel();
  Status room;
  if (!outputs.empty()) room = WaitForRoom(running.execution.step);
  Effects effects;
  Calls to_cancel;
  {
    std::lock_guard lock(mutex_);
    Execution& execution = running.execution;
    if (!room.ok()) {
      dataflow_.OnError(execution, std::move(room), effects);
    } else if (!outputs.empty()) {
      dataflow_.OnResponse(execution, outputs, effects);
    }
    if (is_final) dataflow_.OnEnd(execution, effects);
    to_cancel = Take(effects);
  }
  Act(effects, to_cancel);
}

void Runner::OnError(RunningStep& running, Status error, bool is_final) {
  if (client_->IsCancelled()) Cancel();
  Effects effects;
  Calls to_cancel;
  {
    std::lock_guard lock(mutex_);
    dataflow_.OnError(running.execution, std::move(error), effects);
    if (is_final) dataflow_.OnEnd(running.execution, effects);
    to_cancel = Take(effects);
  }
  Act(effects, to_cancel);
}

void Runner::OnCallOver(RunningStep& running) {
  limiter_->OnStepEnded(running.execution.step);
  std::shared_ptr<RunningStep> dropped;  // these two are destroyed after the mutex is free
  std::shared_ptr<StepCall> call;
  {
    std::lock_guard lock(mutex_);
    running.over = true;
    call = std::move(running.call);
    const size_t position = running.position;
    calls_.back()->position = position;
    std::swap(calls_[position], calls_.back());
    dropped = std::move(calls_.back());
    calls_.pop_back();
  }
  Flush();
}

Runner::Calls Runner::Take(Effects& effects) {
  for (Emission& emission : effects.emissions) {
    outbox_.push_back({.emission = std::move(emission), .has_response = true});
  }
  if (!effects.finished || answered_) return {};
  answered_ = true;
  if (!effects.error.ok()) {
    outbox_.push_back({.error = effects.error, .is_final = true});
    abandoned_ = true;
    return calls_;
  }
  if (effects.emissions.empty()) outbox_.push_back({});
  outbox_.back().is_final = true;
  return {};
}

void Runner::Act(Effects& effects, const Calls& to_cancel) {
  for (Launch& launch : effects.launches) StartStep(launch);
  for (const std::shared_ptr<RunningStep>& running : to_cancel) {
    std::shared_ptr<StepCall> call;
    {
      std::lock_guard lock(mutex_);
      call = running->call;
    }
    if (call != nullptr) call->Cancel();
  }
  if (!to_cancel.empty()) limiter_->Wake();
  Flush();
}

void Runner::StartStep(Launch& launch) {
  const int step = launch.execution.step;
  auto running = std::make_shared<RunningStep>(shared_from_this(), std::move(launch.execution));
  {
    std::lock_guard lock(mutex_);
    if (dataflow_.over()) return;
    running->position = calls_.size();
    calls_.push_back(running);
  }
  limiter_->OnStepStarted(step);
  Result<std::shared_ptr<StepCall>> call =
      models_->Start({.step = step, .inputs = launch.inputs}, running);
  if (!call.ok()) {
    running->OnError(std::move(call).status(), true);
    running->OnReleased();
    return;
  }
  bool cancel;
  {
    std::lock_guard lock(mutex_);
    if (!running->over) running->call = *call;
    cancel = abandoned_;
  }
  if (cancel) (*call)->Cancel();
}

void Runner::Flush() {
  std::unique_lock lock(mutex_);
  if (sending_) return;
  sending_ = true;
  while (!outbox_.empty()) {
    const Answers answers = std::exchange(outbox_, {});
    lock.unlock();
    for (const Answer& answer : answers) SendAnswer(answer);
    lock.lock();
  }
  sending_ = false;
  if (!answered_ || !calls_.empty() || released_) return;
  released_ = true;
  lock.unlock();
  client_->Release();
}

void Runner::SendAnswer(const Answer& answer) {
  if (!answer.error.ok()) {
    client_->SendError(answer.error);
  } else if (answer.has_response) {
    client_->Send(answer.emission, answer.is_final);
  } else {
    client_->SendFinal();
  }
}

bool Runner::IsOver() {
  std::lock_guard lock(mutex_);
  return dataflow_.over();
}

Status Runner::WaitForRoom(int index) {
  const std::vector<int>& followers = plan_->followers[index];
  if (!plan_->graph->steps[index].decoupled || followers.empty()) return {};
  return limiter_->WaitForRoom(followers, [this] { return IsOver(); });
}

}  // namespace nereid::ensemble
