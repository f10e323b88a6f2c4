// The seam between the runner and what it runs: calling a step's model, and answering the client.
// The backend implements both on the C API; tests implement them by hand.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/ensemble/dataflow.h"
#include "backends/ensemble/tensor.h"
#include "nereid/status.h"

namespace nereid::ensemble {

// What a model tells the one who called it. [any thread, also before Start() has returned; events
// of one call do not overlap, except OnReleased]
class StepEvents {
 public:
  virtual ~StepEvents() = default;
  // `outputs` is parallel to Step::outputs; null: not in the response.
  virtual void OnResponse(std::span<const TensorRef> outputs, bool is_final) = 0;
  virtual void OnError(Status error, bool is_final) = 0;
  // The last response was the last.
  virtual void OnFinal() = 0;
  // The model reads the inputs no more.
  virtual void OnReleased() = 0;
};

// A request that a model is working on.
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
  // On error no event comes. The inputs are kept until OnReleased.
  virtual Result<std::shared_ptr<StepCall>> Start(const StepRequest& request,
                                                  std::shared_ptr<StepEvents> events) = 0;
};

// The request that the ensemble answers. Calls never overlap, except IsCancelled.
class ClientRequest {
 public:
  virtual ~ClientRequest() = default;
  virtual bool IsCancelled() = 0;
  virtual void Send(const Emission& emission, bool is_final) = 0;
  // Always the final answer.
  virtual void SendError(const Status& error) = 0;
  // Final, without a response: only of a decoupled ensemble.
  virtual void SendFinal() = 0;
  // The request is over and no step reads its inputs. The last call.
  virtual void Release() = 0;
};

}  // namespace nereid::ensemble
