// Where the time of steps with draft tokens goes: an executor and a drafter that forward every call
// and note how long each took.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/speculation/drafter.h"

namespace nereid::bench {

// One step, from the end of the step before. Times are in ms. [engine thread]
struct DraftStep {
  int32_t num_sequences = 0, num_drafts = 0, num_accepted = 0;
  double all = 0.0;      // from the end of the last Collect to the end of this one
  double propose = 0.0;  // of these: the drafter's calls
  double observe = 0.0;
  double submit = 0.0;
  double collect = 0.0;
  bool is_recorded = false;  // launched as a graph
  bool is_typical = false;
  // The rest of the step, outside these calls: planning, scheduling, emitting.
  double rest() const { return all - propose - observe - submit - collect; }
};

// The steps of an engine. [engine thread; Take() while the engine is idle]
class DraftTrace {
 public:
  using Clock = std::chrono::steady_clock;

  // Adds what `call` takes to a member of the next step.
  template <typename Call>
  decltype(auto) Time(double DraftStep::*member, const Call& call) {
    const auto began = Clock::now();
    struct End {
      ~End() { *to += std::chrono::duration<double, std::milli>(Clock::now() - began).count(); }
      double* to;
      Clock::time_point began;
    } const end{&(next_.*member), began};
    return call();
  }
  DraftStep& next() { return next_; }
  void EndStep() {
    const auto now = Clock::now();
    next_.all = std::chrono::duration<double, std::milli>(now - ended_).count();
    ended_ = now;
    steps_.push_back(std::exchange(next_, {}));
  }
  std::vector<DraftStep> Take() { return std::exchange(steps_, {}); }

 private:
  DraftStep next_;
  Clock::time_point ended_ = Clock::now();
  std::vector<DraftStep> steps_;
};

// Forwards every call and notes the steps. The times of steps that overlap are those of the calls
// between two ends. With any number of sequences, drafters read hidden states. [engine thread]
class TracedExecutor : public llm::Executor {
 public:
  TracedExecutor(std::unique_ptr<llm::Executor> executor, std::shared_ptr<DraftTrace> trace)
      : executor_(std::move(executor)), trace_(std::move(trace)) {}
  const llm::ExecutorLimits& limits() const override { return executor_->limits(); }
  llm::ExecutorFeatures features() const override {
    llm::ExecutorFeatures features = executor_->features();
    features.max_hidden_state_sequences = 0;
    return features;
  }
  llm::ExecutorCounts counts() const override { return executor_->counts(); }
  llm::TypicalCosts typical_step_costs() const override { return executor_->typical_step_costs(); }
  Status Submit(const llm::StepBatch& batch) override {
    DraftStep step;
    step.num_sequences = static_cast<int32_t>(batch.entries.size());
    for (const llm::BatchEntry& entry : batch.entries) step.num_drafts += entry.num_draft_tokens;
    const int64_t before = executor_->counts().num_recorded_steps;
    const Status status =
        trace_->Time(&DraftStep::submit, [&] { return executor_->Submit(batch); });
    step.is_recorded = executor_->counts().num_recorded_steps > before;
    submitted_.push_back(step);
    return status;
  }
  Result<llm::StepResult> Collect() override {
    Result<llm::StepResult> result =
        trace_->Time(&DraftStep::collect, [&] { return executor_->Collect(); });
    DraftStep& step = trace_->next();
    const DraftStep& submitted = submitted_.front();
    step.num_sequences = submitted.num_sequences;
    step.num_drafts = submitted.num_drafts;
    step.is_recorded = submitted.is_recorded;
    if (result.ok()) {
      step.is_typical = result->is_typical;
      for (const auto& accepted : result->accepted)
        step.num_accepted += static_cast<int32_t>(accepted.size());
    }
    submitted_.pop_front();
    trace_->EndStep();
    return result;
  }

 private:
  std::unique_ptr<llm::Executor> executor_;
  std::shared_ptr<DraftTrace> trace_;
  std::deque<DraftStep> submitted_;
};

// Forwards every call and notes how long it took. [engine thread]
class TracedDrafter : public llm::Drafter {
 public:
  TracedDrafter(std::shared_ptr<llm::Drafter> drafter, std::shared_ptr<DraftTrace> trace)
      : drafter_(std::move(drafter)), trace_(std::move(trace)) {}
  std::string_view name() const override { return drafter_->name(); }
  bool is_costly() const override { return drafter_->is_costly(); }
  int32_t max_catch_up() const override { return drafter_->max_catch_up(); }
  bool reads_hidden_states() const override { return drafter_->reads_hidden_states(); }
  void Observe(std::unique_ptr<llm::DrafterState>& state, int32_t first_position,
               const llm::HiddenRows& rows) override {
    trace_->Time(&DraftStep::observe, [&] { drafter_->Observe(state, first_position, rows); });
  }
  void FinishObserving() override {
    trace_->Time(&DraftStep::observe, [&] { drafter_->FinishObserving(); });
  }
  void Propose(std::span<llm::DraftQuery> queries) override {
    trace_->Time(&DraftStep::propose, [&] { drafter_->Propose(queries); });
  }

 private:
  std::shared_ptr<llm::Drafter> drafter_;
  std::shared_ptr<DraftTrace> trace_;
};

// Means of the steps of a run, in four kinds, and the slowest steps.
inline void PrintDraftSteps(int32_t batch, const std::vector<DraftStep>& steps) {
  for (int kind = 0; kind < 4; ++kind) {
    const bool has_drafts = kind % 2 == 1, is_typical = kind / 2 == 1;
    DraftStep sum;
    int count = 0;
    for (const DraftStep& step : steps) {
      if ((step.num_drafts > 0) != has_drafts || step.is_typical != is_typical) continue;
      ++count;
      sum.num_drafts += step.num_drafts;
      sum.num_accepted += step.num_accepted;
      sum.all += step.all;
      sum.propose += step.propose;
      sum.observe += step.observe;
      sum.submit += step.submit;
      sum.collect += step.collect;
    }
    if (count == 0) continue;
    std::printf(
        "%d,%s drafts,%s,%d steps,drafts %.1f,accepted %.1f,all %.3f,propose %.3f,"
        "observe %.3f,submit %.3f,collect %.3f,rest %.3f\n",
        batch, has_drafts ? "with" : "without", is_typical ? "typical" : "not typical", count,
        static_cast<double>(sum.num_drafts) / count, static_cast<double>(sum.num_accepted) / count,
        sum.all / count, sum.propose / count, sum.observe / count, sum.submit / count,
        sum.collect / count, sum.rest() / count);
  }
  std::fflush(stdout);
}

// Every step with drafts, one a line.
inline void PrintEachDraftStep(int32_t batch, const std::vector<DraftStep>& steps) {
  std::printf(
      "batch,step,sequences,drafts,accepted,all,propose,observe,submit,collect,rest,"
      "recorded,typical\n");
  for (size_t i = 0; i < steps.size(); ++i) {
    const DraftStep& step = steps[i];
    if (step.num_drafts == 0 && step.propose == 0.0) continue;
    std::printf("%d,%zu,%d,%d,%d,%.2f,%.2f,%.2f,%.2f,%.2f,%.2f,%d,%d\n", batch, i,
                step.num_sequences, step.num_drafts, step.num_accepted, step.all, step.propose,
                step.observe, step.submit, step.collect, step.rest(), step.is_recorded ? 1 : 0,
                step.is_typical ? 1 : 0);
  }
  std::fflush(stdout);
}

}  // namespace nereid::bench
