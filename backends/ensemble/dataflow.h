// The state machine of one request: which steps may start, which responses are complete and in
// order, and when all is over. Pure: it starts nothing and sends nothing, it says what to do. Not
// thread-safe; the Runner calls it under its mutex.
#pragma once

#include <memory>
#include <span>

#include "backends/ensemble/plan.h"
#include "backends/ensemble/scope.h"
#include "backends/ensemble/tensor.h"
#include "nereid/status.h"

namespace nereid::ensemble {

// One run of a step: from its launch until the model has sent its final response. Whoever launches
// it keeps it.
struct Execution {
  int step = 0;
  std::shared_ptr<Scope> scope;
  size_t num_responses = 0;
  bool ended = false;
};

// A step to start now. inputs is parallel to Step::inputs; null: not sent.
struct Launch {
  Execution execution;
  TensorRefs inputs;
};

// A response to send now. outputs is parallel to Plan::outputs; null: omitted.
struct Emission {
  TensorRefs outputs;
};

// What an event led to. Emissions come first, then the error or the end.
struct Effects {
  InlineVector<Launch, 1> launches;
  InlineVector<Emission, 1> emissions;
  bool finished = false;  // nothing more will be emitted; set at most once in a request's life
  Status error;           // not Ok only when finished: the answer that ends the request
};

class Dataflow {
 public:
  // `plan` outlives this, which outlives every Execution.
  explicit Dataflow(const Plan& plan);
  Dataflow(const Dataflow&) = delete;
  Dataflow& operator=(const Dataflow&) = delete;

  // Starts the request. `inputs` is parallel to Graph::inputs; null: not in the request.
  void Begin(std::span<const TensorRef> inputs, Effects& effects);
  // A response of a running step. `outputs` is parallel to Step::outputs; null: not in the
  // response.
  void OnResponse(Execution& execution, std::span<const TensorRef> outputs, Effects& effects);
  void OnError(Execution& execution, Status error, Effects& effects);
  // The step's model has sent its last response.
  void OnEnd(Execution& execution, Effects& effects);
  // Nothing will be started or emitted any more.
  void Abort();
  bool over() const { return over_; }

 private:
  enum class Progress { kBlocked, kDone, kFailed };

  void OpenScope(const std::shared_ptr<Scope>& scope, Effects& effects);
  // The scope into which the next response of `execution` goes; null when its fate is settled.
  // `fresh` tells the caller to fill its slots first and call OpenScope then.
  std::shared_ptr<Scope> ScopeOfResponse(Execution& execution, bool& fresh);
  void SetOutputs(const std::shared_ptr<Scope>& scope, bool fresh, const Step& step,
                  std::span<const TensorRef> outputs, Effects& effects);
  void Resolve(const std::shared_ptr<Scope>& scope, int tensor, Slot slot, Effects& effects);
  void NotifyConsumer(const std::shared_ptr<Scope>& scope, int step, Effects& effects);
  void Ready(const std::shared_ptr<Scope>& scope, int step, Effects& effects);
  // Whether the step runs; Ok and no launch when it is skipped.
  void LaunchStep(const std::shared_ptr<Scope>& scope, int step, Effects& effects);
  void Skip(const std::shared_ptr<Scope>& scope, int step, Effects& effects);
  // A decoupled step ends in `scope` after `count` responses.
  void CloseStep(const std::shared_ptr<Scope>& scope, int step, size_t count, Effects& effects);
  Status MissingInput(const Step& step, const Binding& input) const;

  void Advance(Effects& effects);
  Progress Drain(Scope& scope, Effects& effects);
  void Emit(Scope& scope, Effects& effects);

  const Plan& plan_;
  const Graph& graph_;
  Scope root_;
  const std::shared_ptr<Scope> root_ref_;  // owns nothing: nobody counts who refers to the root
  bool over_ = false;
};

}  // namespace nereid::ensemble
