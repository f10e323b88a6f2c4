// The engine: one thread that admits requests, plans a step, has the executor run it, and hands out
// the tokens: admit -> schedule -> submit -> collect -> emit. Blocked, not polling, when idle.
//
// With an executor that can overlap, the next step is planned and submitted while one runs: the
// plan does not wait for tokens, only for their number. Which sequences end is then found out a
// step late, and what that step drew for them is dropped. The tokens put out are the same.
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

#include "backends/llm_core/engine/engine_time.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/engine/planning_clock.h"
#include "backends/llm_core/engine/request.h"
#include "backends/llm_core/engine/scheduler.h"
#include "backends/llm_core/engine/step_flights.h"
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
  int64_t num_recorded_steps = 0;
  int64_t num_failed_recordings = 0;
  double step_seconds = 0.0;  // of all steps: from the end of the one before, or from Submit
};

struct EngineOptions {
  SchedulerOptions scheduler;
  int32_t max_queue_size = 0;  // waiting requests; 0: no limit of the engine's own
  bool overlaps_steps = true;  // where the executor can
  // Every sink is asked at each step whether it is cancelled. False: when its request enters the
  // scheduler, and after Engine::LookForCancelled.
  bool asks_sinks = true;
  // Called on the engine thread, at its start and after the sinks of a step; may be empty.
  std::function<void(const EngineStats&)> on_step_end;
  // Where given, called on the engine thread after each step, and when all is given back at the
  // end, with what the checker of blocks and references says: for tests, it walks all of them.
  std::function<void(const Status&)> on_check;
  std::shared_ptr<EngineTime> time = std::make_shared<EngineTime>();
};

class Engine {
 public:
  Engine(EngineOptions options, std::unique_ptr<Executor> executor);
  // Stops intake, answers what is left with UNAVAILABLE, joins. [any thread but the engine's]
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Checks the request and queues it. On an error, `request` and its sink are untouched:
  // INVALID_ARG names the fault, UNAVAILABLE a full queue or a failed engine. [any thread]
  Status Enqueue(std::unique_ptr<GenerationRequest>& request);

  // A sink says from now on that it is cancelled. [any thread]
  void LookForCancelled() { some_are_cancelled_.store(true, std::memory_order_release); }

  const ExecutorLimits& limits() const { return limits_; }  // [any thread]
  EngineStats stats() const;                                // of the last step [any thread]
  // Ok until the executor has failed. [any thread]
  Status health() const;

 private:
  void Run();
  // Moves the inbox to the scheduler; waits for work when there is none, and for those who come
  // while a step runs as long as the next one need not be planned. False: stop.
  bool Admit();
  EngineTime::TimePoint LatestPlanning() const;
  void DropCancelled();
  void Cancel(Sequence& sequence);
  // Submits a step, collects one, or both.
  Status Step();
  Status Launch();
  Status Collect();
  void ApplyToken(Sequence& sequence, const SampledToken& token);
  void PublishStats();
  void Fail(const Status& status);

  const EngineOptions options_;
  const std::unique_ptr<Executor> executor_;
  const ExecutorLimits limits_;
  const ExecutorMemory memory_;
  const bool overlaps_;

  std::atomic<bool> some_are_cancelled_{false};  // sinks, maybe

  // [engine thread]
  Scheduler scheduler_;
  Batch batch_;  // of the newest step
  StepFlights flights_;
  int64_t num_looks_ = 0;  // for cancelled requests
  int64_t num_steps_ = 0;
  int64_t num_output_tokens_ = 0;
  EngineTime::TimePoint collected_;
  PlanningClock planning_clock_;
  double step_seconds_ = 0.0;

  mutable std::mutex inbox_mutex_;  // guards the members below
  std::condition_variable inbox_changed_;
  std::vector<std::unique_ptr<GenerationRequest>> inbox_;
  EngineStats stats_;
  Status health_;
  int32_t num_waiting_ = 0;  // in the scheduler, as of its last look into the inbox
  bool stop_ = false;

  std::thread thread_;  // last: runs while the rest lives
};

}  // namespace nereid::llm
