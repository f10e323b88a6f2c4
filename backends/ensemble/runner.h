// One request on its way through the ensemble: feeds the events of its steps to the Dataflow,
// starts what becomes ready, and sends responses in order. No thread of its own: work is done on
// the thread that brings the event, and never under the mutex. Lives until its last step has ended.
// [any thread]
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "backends/ensemble/dataflow.h"
#include "backends/ensemble/inflight_limiter.h"
#include "backends/ensemble/step_models.h"

namespace nereid::ensemble {

class Runner : public std::enable_shared_from_this<Runner> {
 public:
  // Plan and limiter are shared with other requests; `models` and `client` live as long as this,
  // which is made by std::make_shared.
  Runner(std::shared_ptr<const Plan> plan, std::shared_ptr<InflightLimiter> limiter,
         StepModels& models, ClientRequest& client);
  ~Runner();

  // `inputs` is parallel to Graph::inputs; null: not in the request.
  void Begin(std::span<const TensorRef> inputs);
  // Answers CANCELLED and asks the running steps to stop; nothing when the answer is already out.
  void Cancel();
  bool IsCancelled() { return client_.IsCancelled(); }

 private:
  // A step's call: routes its events to the runner, in which it lies or which it keeps alive.
  class RunningStep : public StepEvents {
   public:
    RunningStep(Runner& runner, Execution started)
        : execution(std::move(started)), runner_(runner) {}

    void OnResponse(std::span<const TensorRef> outputs, bool is_final) override;
    void OnError(Status error, bool is_final) override;
    void OnFinal() override;
    void OnReleased() override { Finish(kReleased); }

    Execution execution;  // the dataflow's, under the runner's mutex; its step is constant
    size_t position = 0;  // in Runner::calls_; guarded by its mutex
    std::shared_ptr<StepCall> call;  // likewise; null until Start has returned, and once over
    bool over = false;               // likewise

   private:
    enum Half : unsigned { kFinalSeen = 1, kReleased = 2 };
    void Finish(Half half);

    Runner& runner_;  // kept alive by whoever keeps this
    std::atomic<unsigned> halves_{0};
  };
  // A step to start.
  struct Start {
    std::shared_ptr<RunningStep> running;
    TensorRefs inputs;
  };
  // One thing to tell the client: a response, an error, or the end alone.
  struct Answer {
    Emission emission = {};
    Status error = {};
    bool has_response = false;
    bool is_final = false;
  };
  using Calls = InlineVector<std::shared_ptr<RunningStep>, 2>;
  using Answers = InlineVector<Answer, 1>;
  // What to do once the mutex is free.
  struct Work {
    InlineVector<Start, 1> starts;
    Calls to_cancel;
    bool must_flush = false;
  };

  void OnResponse(RunningStep& running, std::span<const TensorRef> outputs, bool is_final);
  void OnError(RunningStep& running, Status error, bool is_final);
  void OnCallOver(RunningStep& running);

  // Under mutex_: moves answers to the outbox and launches to calls_.
  Work Take(Effects& effects);
  std::shared_ptr<RunningStep> Register(Execution execution);
  bool NeedsFlush() const;
  // Without mutex_.
  void Act(const Work& work);
  void StartStep(const Start& start);
  void Flush();
  void SendAnswer(const Answer& answer);
  bool IsOver();
  Status WaitForRoom(int step);

  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<InflightLimiter> limiter_;
  StepModels& models_;
  ClientRequest& client_;
  std::atomic<bool> is_over_{false};  // nothing more starts; written under mutex_

  std::mutex mutex_;  // guards all below
  // The first steps to run, which need no memory of their own. Before calls_, which refers to them.
  std::array<std::optional<RunningStep>, 2> first_steps_;
  size_t num_started_ = 0;
  Dataflow dataflow_;
  Calls calls_;             // started and not over
  Answers outbox_;          // in order
  bool sending_ = false;    // some thread empties the outbox
  bool answered_ = false;   // the final answer is out or in the outbox
  bool abandoned_ = false;  // cancelled or failed: what still runs has to stop
  bool released_ = false;
};

}  // namespace nereid::ensemble
