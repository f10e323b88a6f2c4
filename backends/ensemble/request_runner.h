// Runs one request through the ensemble: passes the events of its steps to the Dataflow, starts the
// steps that become ready, and sends responses in order. It has no thread of its own: the thread
// that brings an event does the work, and never under the mutex. Lives until its last step has
// ended. [any thread]
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

class RequestRunner : public std::enable_shared_from_this<RequestRunner> {
 public:
  // Plan and limiter are shared with other requests. `models` and `client` live as long as this
  // object, which std::make_shared creates.
  RequestRunner(std::shared_ptr<const Plan> plan, std::shared_ptr<InflightLimiter> limiter,
                StepModels& models, ClientRequest& client);
  ~RequestRunner();

  // `inputs` is parallel to Graph::inputs; null for an absent input.
  void Begin(std::span<const TensorRef> inputs);
  // Answers CANCELLED and asks the running steps to stop. Does nothing if the final answer was
  // sent.
  void Cancel();
  bool IsCancelled() { return client_.IsCancelled(); }

 private:
  // Receives the events of one step's call. Stored in the runner, or owns a reference to it.
  class RunningStep : public StepEvents {
   public:
    RunningStep(RequestRunner& runner, StepExecution started)
        : execution(std::move(started)), runner_(runner) {}

    void OnResponse(std::span<const TensorRef> outputs, bool is_final) override;
    void OnError(Status error, bool is_final) override;
    void OnFinal() override;
    void OnReleased() override { Finish(kReleased); }

    StepExecution execution;  // used by the dataflow under the runner's mutex; its step is constant
    size_t position = 0;      // in RequestRunner::calls_; guarded by its mutex
    // Guarded by the runner's mutex. Null until Start has returned and after the call is over.
    std::shared_ptr<StepCall> call;
    bool over = false;  // guarded by the runner's mutex

   private:
    enum CallEnd : unsigned { kFinalSeen = 1, kReleased = 2 };
    void Finish(CallEnd half);

    RequestRunner& runner_;  // kept alive by the owner of this object
    std::atomic<unsigned> ends_{0};
  };
  // A step to start.
  struct StepStart {
    std::shared_ptr<RunningStep> running;
    TensorRefs inputs;
  };
  // One answer to the client: a response, an error, or the end of the stream alone.
  struct ClientAnswer {
    EnsembleResponse response = {};
    Status error = {};
    bool has_response = false;
    bool is_final = false;
  };
  using Calls = InlineVector<std::shared_ptr<RunningStep>, 2>;
  using ClientAnswers = InlineVector<ClientAnswer, 1>;
  // The work to do after the mutex is unlocked.
  struct PendingWork {
    InlineVector<StepStart, 1> starts;
    Calls to_cancel;
    bool must_flush = false;
  };

  void OnResponse(RunningStep& running, std::span<const TensorRef> outputs, bool is_final);
  void OnError(RunningStep& running, Status error, bool is_final);
  void OnCallOver(RunningStep& running);

  // Requires mutex_. Moves responses to the outbox and launches to calls_.
  PendingWork ApplyActions(DataflowActions& actions);
  std::shared_ptr<RunningStep> Register(StepExecution execution);
  bool NeedsFlush() const;
  // Called without mutex_.
  void Perform(const PendingWork& work);
  void StartStep(const StepStart& start);
  void Flush();
  void SendAnswer(const ClientAnswer& answer);
  bool IsOver();
  Status WaitForCapacity(int step);

  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<InflightLimiter> limiter_;
  StepModels& models_;
  ClientRequest& client_;
  std::atomic<bool> is_over_{false};  // no further step starts; written under mutex_

  std::mutex mutex_;  // guards all below
  // Storage for the first steps, which saves their allocation. Declared before calls_, which
  // refers to it.
  std::array<std::optional<RunningStep>, 2> first_steps_;
  size_t num_started_ = 0;
  Dataflow dataflow_;
  Calls calls_;               // started and not over
  ClientAnswers outbox_;      // in order
  bool sending_ = false;      // a thread is emptying the outbox
  bool answered_ = false;     // the final answer was sent or is in the outbox
  bool must_cancel_ = false;  // cancelled or failed: the running steps have to stop
  bool released_ = false;
};

}  // namespace nereid::ensemble
