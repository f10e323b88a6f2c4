// Implements StepModels on the C API: each step becomes a request to its model. The request carries
// the id, sequence, priority, timeout and parameters of the client's request, and its inputs
// reference the tensors' memory. [any thread]
#pragma once

#include <memory>

#include "backends/ensemble/inflight_limiter.h"
#include "backends/ensemble/plan.h"
#include "backends/ensemble/step_models.h"
#include "nereid/response_allocator.h"
#include "nereid/server.h"
#include "triton/core/tritonbackend.h"

namespace nereid::ensemble {

// State that all requests of one ensemble share. Each of them owns a reference.
struct CallContext {
  TRITONSERVER_Server* server = nullptr;  // outlives the model
  std::shared_ptr<InflightLimiter> limiter;
  ResponseAllocator allocator;  // with StepBufferPolicy
};

class CApiStepModels : public StepModels {
 public:
  // `client` is released only after every step was released.
  CApiStepModels(std::shared_ptr<const CallContext> context, std::shared_ptr<const Plan> plan,
                 TRITONBACKEND_Request* client);

  Result<std::shared_ptr<StepCall>> Start(const StepRequest& request,
                                          std::shared_ptr<StepEvents> events) override;

 private:
  Status FillInputs(const StepRequest& request, InferRequest& target) const;
  Status RequestOutputs(const Step& step, InferRequest& target) const;
  // Null if the client's request is not traced.
  TRITONSERVER_InferenceTrace* ChildTrace() const;

  const std::shared_ptr<const CallContext> context_;
  const std::shared_ptr<const Plan> plan_;
  TRITONBACKEND_Request* const client_;
  const bool
      has_attributes_;  // something to forward; read once, because steps start on other threads
  TRITONSERVER_InferenceTrace* trace_ = nullptr;  // the client's; null if it is not traced
};

}  // namespace nereid::ensemble
