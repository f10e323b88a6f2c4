// One request on its way through the ensemble: feeds the events of its steps to the Dataflow,
// starts what becomes ready, and sends responses in order. No thread of its own: work is done on
// the thread that brings the event, and never under the mutex. Lives until its last step has ended.
// [any thread]
#pragma once

#include <memory>
#include <mutex>
#include <span>

#include "backends/ensemble/dataflow.h"
#include "backends/ensemble/inflight_limiter.h"
#include "backends/ensemble/step_models.h"

namespace nereid::ensemble {

class Runner : public std::enable_shared_from_this<Runner> {
 public:
  // Plan and limiter are shared with other requests.
  Runner(std::shared_ptr<const Plan> plan, std::shared_ptr<InflightLimiter> limiter,
         std::unique_ptr<StepModels> models, std::unique_ptr<ClientRequest> client);

  // `inputs` is parallel to Graph::inputs; null: not in the request.
  void Begin(std::span<const TensorRef> inputs);
  // Answers CANCELLED and asks the running steps to stop; nothing when the answer is already out.
  void Cancel();
  bool IsCancelled() { return client_->IsCancelled(); }

 private:
  class RunningStep;
  // One thing to tell the client: a response, an error, or the end alone.
  struct Answer {
    Emission emission = {};
    Status error = {};
    bool has_response = false;
    bool is_final = false;
  };
  using Calls = InlineVector<std::shared_ptr<RunningStep>, 2>;
  using Answers = InlineVector<Answer, 1>;

  void OnResponse(RunningStep& running, std::span<const TensorRef> outputs, bool is_final);
  void OnError(RunningStep& running, Status error, bool is_final);
  void OnCallOver(RunningStep& running);

  // Under mutex_: moves answers to the outbox; returns the calls to cancel.
  Calls Take(Effects& effects);
  // Without mutex_.
  void Act(Effects& effects, const Calls& to_cancel);
  void StartStep(Launch& launch);
  void Flush();
  void SendAnswer(const Answer& answer);
  bool IsOver();
  Status WaitForRoom(int step);

  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<InflightLimiter> limiter_;
  const std::unique_ptr<StepModels> models_;
  const std::unique_ptr<ClientRequest> client_;

  std::mutex mutex_;  // guards all below
  Dataflow dataflow_;
  Calls calls_;             // started and not over
  Answers outbox_;          // in order
  bool sending_ = false;    // some thread empties the outbox
  bool answered_ = false;   // the final answer is out or in the outbox
  bool abandoned_ = false;  // cancelled or failed: what still runs has to stop
  bool released_ = false;
};

}  // namespace nereid::ensemble
