#include "backends/ensemble/request_runner.h"

#include <utility>

namespace nereid::ensemble {

void RequestRunner::RunningStep::OnResponse(std::span<const TensorRef> outputs, bool is_final) {
  runner_.OnResponse(*this, outputs, is_final);
  if (is_final) Finish(kFinalSeen);
}

void RequestRunner::RunningStep::OnError(Status error, bool is_final) {
  runner_.OnError(*this, std::move(error), is_final);
  if (is_final) Finish(kFinalSeen);
}

void RequestRunner::RunningStep::OnFinal() {
  runner_.OnResponse(*this, {}, true);
  Finish(kFinalSeen);
}

// A call is over when both its final response and its release have arrived, in any order.
void RequestRunner::RunningStep::Finish(CallEnd end) {
  const unsigned before = ends_.fetch_or(end, std::memory_order_acq_rel);
  if (before != (kFinalSeen | kReleased) && (before | end) == (kFinalSeen | kReleased)) {
    runner_.OnCallOver(*this);
  }
}

RequestRunner::RequestRunner(std::shared_ptr<const Plan> plan,
                             std::shared_ptr<InflightLimiter> limiter, StepModels& models,
                             ClientRequest& client)
    : plan_(std::move(plan)),
      limiter_(std::move(limiter)),
      models_(models),
      client_(client),
      dataflow_(*plan_) {}

RequestRunner::~RequestRunner() = default;

void RequestRunner::Begin(std::span<const TensorRef> inputs) {
  DataflowActions actions;
  PendingWork work;
  {
    std::lock_guard lock(mutex_);
    dataflow_.Begin(inputs, actions);
    work = ApplyActions(actions);
  }
  Perform(work);
}

void RequestRunner::Cancel() {
  PendingWork work;
  {
    std::lock_guard lock(mutex_);
    if (answered_) return;
    dataflow_.Abort();
    is_over_.store(true, std::memory_order_release);
    answered_ = must_cancel_ = true;
    outbox_.push_back(
        {.error = CancelledError("ensemble '", plan_->graph->name, "': the request was cancelled"),
         .is_final = true});
    work.to_cancel = calls_;
    work.must_flush = NeedsFlush();
  }
  Perform(work);
}

void RequestRunner::OnResponse(RunningStep& running, std::span<const TensorRef> outputs,
                               bool is_final) {
  if (client_.IsCancelled()) Cancel();
  Status capacity;
  if (!outputs.empty()) capacity = WaitForCapacity(running.execution.step);
  DataflowActions actions;
  PendingWork work;
  {
    std::lock_guard lock(mutex_);
    StepExecution& execution = running.execution;
    if (!capacity.ok()) {
      dataflow_.OnError(execution, std::move(capacity), actions);
    } else if (!outputs.empty()) {
      dataflow_.OnResponse(execution, outputs, actions);
    }
    if (is_final) dataflow_.OnEnd(execution, actions);
    work = ApplyActions(actions);
  }
  Perform(work);
}

void RequestRunner::OnError(RunningStep& running, Status error, bool is_final) {
  if (client_.IsCancelled()) Cancel();
  DataflowActions actions;
  PendingWork work;
  {
    std::lock_guard lock(mutex_);
    dataflow_.OnError(running.execution, std::move(error), actions);
    if (is_final) dataflow_.OnEnd(running.execution, actions);
    work = ApplyActions(actions);
  }
  Perform(work);
}

void RequestRunner::OnCallOver(RunningStep& running) {
  limiter_->OnStepEnded(running.execution.step);
  std::shared_ptr<RunningStep> dropped;  // these three are destroyed after the mutex is unlocked
  std::shared_ptr<StepCall> call;
  std::shared_ptr<Scope> scope;
  bool must_flush;
  {
    std::lock_guard lock(mutex_);
    running.over = true;
    call = std::move(running.call);
    scope = std::move(running.execution.scope);
    const size_t position = running.position;
    calls_.back()->position = position;
    std::swap(calls_[position], calls_.back());
    dropped = std::move(calls_.back());
    calls_.pop_back();
    must_flush = NeedsFlush();
  }
  if (must_flush) Flush();
}

RequestRunner::PendingWork RequestRunner::ApplyActions(DataflowActions& actions) {
  PendingWork work;
  for (EnsembleResponse& response : actions.responses) {
    outbox_.push_back({.response = std::move(response), .has_response = true});
  }
  if (dataflow_.over()) {
    is_over_.store(true, std::memory_order_release);
  } else {
    for (StepLaunch& launch : actions.launches) {
      work.starts.push_back({Register(std::move(launch.execution)), std::move(launch.inputs)});
    }
  }
  if (actions.finished && !answered_) {
    answered_ = true;
    if (!actions.error.ok()) {
      outbox_.push_back({.error = actions.error, .is_final = true});
      must_cancel_ = true;
      work.to_cancel = calls_;
    } else {
      if (actions.responses.empty()) outbox_.push_back({});
      outbox_.back().is_final = true;
    }
  }
  work.must_flush = NeedsFlush();
  return work;
}

std::shared_ptr<RequestRunner::RunningStep> RequestRunner::Register(StepExecution execution) {
  std::shared_ptr<RunningStep> running;
  if (num_started_ < first_steps_.size()) {
    auto& storage = first_steps_[num_started_];
    storage.emplace(*this, std::move(execution));
    running = std::shared_ptr<RunningStep>(shared_from_this(), &*storage);
  } else {
    struct OwnedStep {
      OwnedStep(std::shared_ptr<RequestRunner> owner, StepExecution started)
          : runner(std::move(owner)), step(*runner, std::move(started)) {}
      const std::shared_ptr<RequestRunner> runner;
      RunningStep step;
    };
    auto owned = std::make_shared<OwnedStep>(shared_from_this(), std::move(execution));
    running = std::shared_ptr<RunningStep>(owned, &owned->step);
  }
  ++num_started_;
  running->position = calls_.size();
  calls_.push_back(running);
  return running;
}

// A thread that is already emptying the outbox also sends what is added meanwhile.
bool RequestRunner::NeedsFlush() const {
  if (sending_) return false;
  return !outbox_.empty() || (answered_ && calls_.empty() && !released_);
}

void RequestRunner::Perform(const PendingWork& work) {
  for (const StepStart& start : work.starts) StartStep(start);
  for (const std::shared_ptr<RunningStep>& running : work.to_cancel) {
    std::shared_ptr<StepCall> call;
    {
      std::lock_guard lock(mutex_);
      call = running->call;
    }
    if (call != nullptr) call->Cancel();
  }
  if (!work.to_cancel.empty()) limiter_->Wake();
  if (work.must_flush) Flush();
}

void RequestRunner::StartStep(const StepStart& start) {
  RunningStep& running = *start.running;
  const int step = running.execution.step;
  limiter_->OnStepStarted(step);
  if (is_over_.load(std::memory_order_acquire)) return OnCallOver(running);
  Result<std::shared_ptr<StepCall>> call =
      models_.Start({.step = step, .inputs = start.inputs}, start.running);
  if (!call.ok()) {
    running.OnError(std::move(call).status(), true);
    running.OnReleased();
    return;
  }
  bool cancel;
  {
    std::lock_guard lock(mutex_);
    if (!running.over) running.call = *call;
    cancel = must_cancel_;
  }
  if (cancel) (*call)->Cancel();
}

void RequestRunner::Flush() {
  std::unique_lock lock(mutex_);
  if (sending_) return;
  sending_ = true;
  while (!outbox_.empty()) {
    const ClientAnswers answers = std::exchange(outbox_, {});
    lock.unlock();
    for (const ClientAnswer& answer : answers) SendAnswer(answer);
    lock.lock();
  }
  sending_ = false;
  if (!answered_ || !calls_.empty() || released_) return;
  released_ = true;
  lock.unlock();
  client_.Release();
}

void RequestRunner::SendAnswer(const ClientAnswer& answer) {
  if (!answer.error.ok()) {
    client_.SendError(answer.error);
  } else if (answer.has_response) {
    client_.Send(answer.response, answer.is_final);
  } else {
    client_.SendFinal();
  }
}

bool RequestRunner::IsOver() {
  std::lock_guard lock(mutex_);
  return dataflow_.over();
}

Status RequestRunner::WaitForCapacity(int index) {
  const std::vector<int>& downstream_steps = plan_->downstream_steps[index];
  if (!plan_->graph->steps[index].decoupled || downstream_steps.empty()) return {};
  return limiter_->WaitForCapacity(downstream_steps, [this] { return IsOver(); });
}

}  // namespace nereid::ensemble
