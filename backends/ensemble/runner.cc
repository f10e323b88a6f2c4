#include "backends/ensemble/runner.h"

#include <utility>

namespace nereid::ensemble {

void Runner::RunningStep::OnResponse(std::span<const TensorRef> outputs, bool is_final) {
  runner_.OnResponse(*this, outputs, is_final);
  if (is_final) Finish(kFinalSeen);
}

void Runner::RunningStep::OnError(Status error, bool is_final) {
  runner_.OnError(*this, std::move(error), is_final);
  if (is_final) Finish(kFinalSeen);
}

void Runner::RunningStep::OnFinal() {
  runner_.OnResponse(*this, {}, true);
  Finish(kFinalSeen);
}

// A call is over when both its final response and its release have come, in any order.
void Runner::RunningStep::Finish(Half half) {
  const unsigned before = halves_.fetch_or(half, std::memory_order_acq_rel);
  if (before != (kFinalSeen | kReleased) && (before | half) == (kFinalSeen | kReleased)) {
    runner_.OnCallOver(*this);
  }
}

Runner::Runner(std::shared_ptr<const Plan> plan, std::shared_ptr<InflightLimiter> limiter,
               StepModels& models, ClientRequest& client)
    : plan_(std::move(plan)),
      limiter_(std::move(limiter)),
      models_(models),
      client_(client),
      dataflow_(*plan_) {}

Runner::~Runner() = default;

void Runner::Begin(std::span<const TensorRef> inputs) {
  Effects effects;
  Work work;
  {
    std::lock_guard lock(mutex_);
    dataflow_.Begin(inputs, effects);
    work = Take(effects);
  }
  Act(work);
}

void Runner::Cancel() {
  Work work;
  {
    std::lock_guard lock(mutex_);
    if (answered_) return;
    dataflow_.Abort();
    is_over_.store(true, std::memory_order_release);
    answered_ = abandoned_ = true;
    outbox_.push_back(
        {.error = CancelledError("ensemble '", plan_->graph->name, "': the request was cancelled"),
         .is_final = true});
    work.to_cancel = calls_;
    work.must_flush = NeedsFlush();
  }
  Act(work);
}

void Runner::OnResponse(RunningStep& running, std::span<const TensorRef> outputs, bool is_final) {
  if (client_.IsCancelled()) Cancel();
  Status room;
  if (!outputs.empty()) room = WaitForRoom(running.execution.step);
  Effects effects;
  Work work;
  {
    std::lock_guard lock(mutex_);
    Execution& execution = running.execution;
    if (!room.ok()) {
      dataflow_.OnError(execution, std::move(room), effects);
    } else if (!outputs.empty()) {
      dataflow_.OnResponse(execution, outputs, effects);
    }
    if (is_final) dataflow_.OnEnd(execution, effects);
    work = Take(effects);
  }
  Act(work);
}

void Runner::OnError(RunningStep& running, Status error, bool is_final) {
  if (client_.IsCancelled()) Cancel();
  Effects effects;
  Work work;
  {
    std::lock_guard lock(mutex_);
    dataflow_.OnError(running.execution, std::move(error), effects);
    if (is_final) dataflow_.OnEnd(running.execution, effects);
    work = Take(effects);
  }
  Act(work);
}

void Runner::OnCallOver(RunningStep& running) {
  limiter_->OnStepEnded(running.execution.step);
  std::shared_ptr<RunningStep> dropped;  // these three are destroyed after the mutex is free
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

Runner::Work Runner::Take(Effects& effects) {
  Work work;
  for (Emission& emission : effects.emissions) {
    outbox_.push_back({.emission = std::move(emission), .has_response = true});
  }
  if (dataflow_.over()) {
    is_over_.store(true, std::memory_order_release);
  } else {
    for (Launch& launch : effects.launches) {
      work.starts.push_back({Register(std::move(launch.execution)), std::move(launch.inputs)});
    }
  }
  if (effects.finished && !answered_) {
    answered_ = true;
    if (!effects.error.ok()) {
      outbox_.push_back({.error = effects.error, .is_final = true});
      abandoned_ = true;
      work.to_cancel = calls_;
    } else {
      if (effects.emissions.empty()) outbox_.push_back({});
      outbox_.back().is_final = true;
    }
  }
  work.must_flush = NeedsFlush();
  return work;
}

std::shared_ptr<Runner::RunningStep> Runner::Register(Execution execution) {
  std::shared_ptr<RunningStep> running;
  if (num_started_ < first_steps_.size()) {
    auto& place = first_steps_[num_started_];
    place.emplace(*this, std::move(execution));
    running = std::shared_ptr<RunningStep>(shared_from_this(), &*place);
  } else {
    struct Kept {
      Kept(std::shared_ptr<Runner> keeper, Execution started)
          : runner(std::move(keeper)), step(*runner, std::move(started)) {}
      const std::shared_ptr<Runner> runner;
      RunningStep step;
    };
    auto kept = std::make_shared<Kept>(shared_from_this(), std::move(execution));
    running = std::shared_ptr<RunningStep>(kept, &kept->step);
  }
  ++num_started_;
  running->position = calls_.size();
  calls_.push_back(running);
  return running;
}

// While some thread empties the outbox, it sees what is added.
bool Runner::NeedsFlush() const {
  if (sending_) return false;
  return !outbox_.empty() || (answered_ && calls_.empty() && !released_);
}

void Runner::Act(const Work& work) {
  for (const Start& start : work.starts) StartStep(start);
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

void Runner::StartStep(const Start& start) {
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
  client_.Release();
}

void Runner::SendAnswer(const Answer& answer) {
  if (!answer.error.ok()) {
    client_.SendError(answer.error);
  } else if (answer.has_response) {
    client_.Send(answer.emission, answer.is_final);
  } else {
    client_.SendFinal();
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
