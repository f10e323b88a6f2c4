// The state machine of one request: which steps may start, which responses are complete and next in
// order, and when the request is finished. It has no side effects: it returns the actions to
// perform. Not thread-safe; the RequestRunner calls it under its mutex.
#pragma once

#include <memory>
#include <span>

#include "backends/ensemble/plan.h"
#include "backends/ensemble/scope.h"
#include "backends/ensemble/tensor.h"
#include "nereid/status.h"

namespace nereid::ensemble {

// One execution of a step, from its launch until its model has sent the final response. The caller
// that launches the step owns the object.
struct StepExecution {
  int step = 0;
  std::shared_ptr<Scope> scope;
  size_t num_responses = 0;
  bool ended = false;
};

// A step to start now. `inputs` is parallel to Step::inputs; a null input is not sent.
struct StepLaunch {
  StepExecution execution;
  TensorRefs inputs;
};

// A response to send now. `outputs` is parallel to Plan::outputs; a null output is omitted.
struct EnsembleResponse {
  TensorRefs outputs;
};

// The actions that follow from an event. Send the responses first, then the error or the end.
struct DataflowActions {
  InlineVector<StepLaunch, 1> launches;
  InlineVector<EnsembleResponse, 1> responses;
  bool finished = false;  // no further response follows; set at most once for a request
  Status error;           // not Ok only if finished: the error that ends the request
};

class Dataflow {
 public:
  // `plan` outlives this object, which outlives every StepExecution.
  explicit Dataflow(const Plan& plan);
  Dataflow(const Dataflow&) = delete;
  Dataflow& operator=(const Dataflow&) = delete;

  // Starts the request. `inputs` is parallel to Graph::inputs; null for an absent input.
  void Begin(std::span<const TensorRef> inputs, DataflowActions& actions);
  // A response of a running step. `outputs` is parallel to Step::outputs; null for an absent
  // output.
  void OnResponse(StepExecution& execution, std::span<const TensorRef> outputs,
                  DataflowActions& actions);
  void OnError(StepExecution& execution, Status error, DataflowActions& actions);
  // The step's model has sent its final response.
  void OnEnd(StepExecution& execution, DataflowActions& actions);
  // From now on, no action starts a step or sends a response.
  void Abort();
  bool over() const { return over_; }

 private:
  enum class Progress { kBlocked, kDone, kFailed };

  void OpenScope(const std::shared_ptr<Scope>& scope, DataflowActions& actions);
  // Returns the scope of the next response of `execution`, or null if the scope is already done. If
  // `is_new` is set, the caller fills the slots first and then calls OpenScope.
  std::shared_ptr<Scope> ScopeOfResponse(StepExecution& execution, bool& is_new);
  void SetOutputs(const std::shared_ptr<Scope>& scope, bool is_new, const Step& step,
                  std::span<const TensorRef> outputs, DataflowActions& actions);
  void Resolve(const std::shared_ptr<Scope>& scope, int tensor, TensorSlot slot,
               DataflowActions& actions);
  void NotifyConsumer(const std::shared_ptr<Scope>& scope, int step, DataflowActions& actions);
  void Ready(const std::shared_ptr<Scope>& scope, int step, DataflowActions& actions);
  // Adds a launch, unless the step is skipped or a mandatory input is missing.
  void LaunchStep(const std::shared_ptr<Scope>& scope, int step, DataflowActions& actions);
  void Skip(const std::shared_ptr<Scope>& scope, int step, DataflowActions& actions);
  // A decoupled step has ended in `scope` after `count` responses.
  void CloseStep(const std::shared_ptr<Scope>& scope, int step, size_t count,
                 DataflowActions& actions);
  Status MissingInput(const Step& step, const Binding& input) const;

  void Advance(DataflowActions& actions);
  Progress Drain(Scope& scope, DataflowActions& actions);
  void Emit(Scope& scope, DataflowActions& actions);

  const Plan& plan_;
  const Graph& graph_;
  Scope root_;
  const std::shared_ptr<Scope> root_ref_;  // does not own the root; only its address is shared
  bool over_ = false;
};

}  // namespace nereid::ensemble
