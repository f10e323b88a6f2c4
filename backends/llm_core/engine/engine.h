// The engine: one thread that admits requests, schedules a step, submits it to the executor,
// collects the result and emits the tokens. It blocks while it is idle and does not poll.
//
// If the executor supports overlap, the next step is scheduled and submitted while one runs. The
// schedule needs only the number of tokens, not their values. A sequence that ends is then noticed
// one step late, and the extra token is discarded. The emitted tokens are the same as without
// overlap.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/llm_core/engine/draft_planner.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/engine/kv_events.h"
#include "backends/llm_core/engine/mask_threads.h"
#include "backends/llm_core/engine/planning_timer.h"
#include "backends/llm_core/engine/request.h"
#include "backends/llm_core/engine/scheduler.h"
#include "backends/llm_core/engine/steps_in_flight.h"
#include "backends/llm_core/engine/stuck_requests.h"
#include "nereid/status.h"

namespace nereid::llm {

struct EngineStats {
  SchedulerCounts counts;
  int32_t num_blocks = 0;
  int32_t num_used_blocks = 0;
  int32_t block_size = 0;
  int32_t max_num_sequences = 0;
  ExecutorMemory memory;
  int64_t num_steps = 0;
  int64_t num_output_tokens = 0;
  SpeculationCounts speculation;    // of the drafter
  SpeculationCounts client_drafts;  // of drafts that clients sent
  int64_t num_recorded_steps = 0;
  int64_t num_failed_recordings = 0;
  // Sum over steps, each from the end of the previous step or from Submit.
  double step_seconds = 0.0;
};

struct EngineOptions {
  SchedulerOptions scheduler;
  SpeculationOptions speculation;  // no effect without ExecutorFeatures::draft_tokens
  int32_t max_queue_size = 0;      // limit of waiting requests; 0: no limit
  bool overlaps_steps = true;      // if the executor supports it
  // True: every sink is polled for cancellation in each step. False: only when its request enters
  // the scheduler, and after Engine::CheckCancellations.
  bool polls_sinks = true;
  // Called on the engine thread at its start and after the sinks of each step. May be empty.
  std::function<void(const EngineStats&)> on_step_end;
  // Receives what becomes of the content of the prefix cache, step by step. May be null.
  std::shared_ptr<KvEventSink> kv_events;
  // For tests: called on the engine thread after each step and after shutdown, with the result of
  // Scheduler::CheckInvariants, which visits every block. May be empty.
  std::function<void(const Status&)> on_check;
  std::shared_ptr<EngineClock> clock = std::make_shared<EngineClock>();
};

class Engine {
 public:
  Engine(EngineOptions options, std::unique_ptr<Executor> executor);
  // Rejects new requests, fails the open ones with UNAVAILABLE and joins the thread. [any thread
  // but the engine's]
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Checks the request and queues it. On an error, `request` and its sink are unchanged:
  // INVALID_ARG names the invalid field, UNAVAILABLE means a full queue or a failed engine. [any
  // thread]
  Status Enqueue(std::unique_ptr<GenerationRequest>& request);

  // Tells the engine that some sinks have become cancelled. [any thread]
  void CheckCancellations() { cancellation_pending_.store(true, std::memory_order_release); }

  const ExecutorLimits& limits() const { return limits_; }  // [any thread]
  EngineStats stats() const;                                // as of the last step [any thread]
  // Ok until the executor fails. [any thread]
  Status health() const;

 private:
  void Run();
  // Moves new requests to the scheduler. Waits for work when there is none. While a step runs,
  // waits for arrivals as long as the next step need not be scheduled yet. Returns false on
  // shutdown.
  bool AdmitRequests();
  bool has_work() const { return !scheduler_.is_empty() || !steps_in_flight_.is_empty(); }
  // When the next step has to be scheduled, so that it can follow the one that runs.
  EngineClock::TimePoint NextPlanningTime() const;
  void RemoveCancelled();
  // Submits a step, collects one, or both.
  Status RunStep();
  Status SubmitStep();
  // Makes the adapters of batch_ ready, and fails the requests of those that are not.
  Status LoadAdapters();
  void SleepDuringStep();
  Status CollectStep();
  // `collect_began`: when the engine began to wait for the result.
  void MeasureStep(const StepInFlight& step, const StepResult& result,
                   EngineClock::TimePoint collect_began);
  // Applies the result of the step's entry `i`. With `samples`, sequences that end with it are
  // appended to `finished`.
  void ApplyEntry(Sequence& sequence, size_t i, bool samples, StepResult& result,
                  std::vector<const Sequence*>& finished);
  // The part for sampled tokens, without beam search.
  void ApplySampled(Sequence& sequence, size_t i, const StepResult& result);
  // An error means that the grammar could not follow the token.
  Status ApplyToken(Sequence& sequence, const SampledToken& sampled);
  // No token was sampled. Returns whether the text is complete, and ends the sequence then.
  bool EndWithoutToken(Sequence& sequence);
  // Applies the tokens of an entry with draft tokens up to the one that ends the sequence.
  Status ApplyAccepted(Sequence& sequence, std::span<const SampledToken> accepted);
  void PublishStats();
  void PublishEvents();
  void Fail(const Status& status);

  const EngineOptions options_;
  const std::unique_ptr<Executor> executor_;
  const ExecutorLimits limits_;
  const ExecutorMemory memory_;
  const bool overlaps_;

  std::atomic<bool> cancellation_pending_{false};  // set if some sinks may be cancelled

  // [engine thread]
  Scheduler scheduler_;
  DraftPlanner draft_planner_;
  StepBatch batch_;  // of the newest step
  StepsInFlight steps_in_flight_;
  StuckRequests stuck_;  // of the step that is collected
  MaskThreads mask_threads_;
  int64_t num_cancel_checks_ = 0;  // rounds in which sinks were polled
  int64_t num_steps_ = 0;
  int64_t num_output_tokens_ = 0;
  EngineClock::TimePoint planned_;    // when planning of the newest step began
  EngineClock::TimePoint collected_;  // when the result of the last step was there
  bool was_busy_ = false;             // the scheduler had sequences left then
  bool was_kept_by_drafts_ = false;   // StepInFlight::is_kept_by_drafts of the last step
  PlanningTimer planning_timer_;
  double step_seconds_ = 0.0;

  mutable std::mutex inbox_mutex_;  // guards the members below
  std::condition_variable inbox_changed_;
  std::vector<std::unique_ptr<GenerationRequest>> inbox_;
  EngineStats stats_;
  Status health_;
  int32_t num_waiting_ = 0;  // in the scheduler, when the inbox was last emptied
  bool stop_ = false;

  std::thread thread_;  // last member: the thread uses the others
};

}  // namespace nereid::llm
