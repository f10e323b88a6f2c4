// The interfaces between the runner and its surroundings: StepModels calls a step's model,
// ClientRequest answers the client. The backend implements both on the C API, tests implement them
// with fakes.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/ensemble/dataflow.h"
#include "backends/ensemble/tensor.h"
#include "nereid/status.h"

namespace nereid::ensemble {

// Events of one call of a model. [any thread, also before Start() has returned; events of one call
// do not overlap, except OnReleased]
class StepEvents {
 public:
  virtual ~StepEvents() = default;
  // `outputs` is parallel to Step::outputs; null for an absent output.
  virtual void OnResponse(std::span<const TensorRef> outputs, bool is_final) = 0;
  virtual void OnError(Status error, bool is_final) = 0;
  // The final response without outputs: the response before was the last.
  virtual void OnFinal() = 0;
  // The model no longer reads the inputs.
  virtual void OnReleased() = 0;
};

// A request that a model is executing.
class StepCall {
 public:
  virtual ~StepCall() = default;
  // Asks the model to stop; it still sends its final response. [any thread]
  virtual void Cancel() = 0;
};

struct StepRequest {
  int step = 0;
  std::span<const TensorRef> inputs;  // parallel to Step::inputs; null: not sent
};

// Calls models for one client request. [any thread]
class StepModels {
 public:
  virtual ~StepModels() = default;
  // If it returns an error, no event follows. The inputs are kept until OnReleased.
  virtual Result<std::shared_ptr<StepCall>> Start(const StepRequest& request,
                                                  std::shared_ptr<StepEvents> events) = 0;
};

// The client's request, which the ensemble answers. Calls never overlap, except IsCancelled.
class ClientRequest {
 public:
  virtual ~ClientRequest() = default;
  virtual bool IsCancelled() = 0;
  virtual void Send(const EnsembleResponse& response, bool is_final) = 0;
  // Always the final answer.
  virtual void SendError(const Status& error) = 0;
  // The end of the stream without a response; only for a decoupled ensemble.
  virtual void SendFinal() = 0;
  // The request is finished and no step reads its inputs. This is the last call.
  virtual void Release() = 0;
};

}  // namespace nereid::ensemble
