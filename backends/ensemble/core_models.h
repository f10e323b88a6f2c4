// StepModels on the C API: each step becomes a request to its model that carries what the client's
// request said (id, sequence, priority, timeout, parameters) and whose inputs are the tensors where
// they lie. [any thread]
#pragma once

#include <memory>

#include "backends/ensemble/inflight_limiter.h"
#include "backends/ensemble/plan.h"
#include "backends/ensemble/step_models.h"
#include "nereid/response_allocator.h"
#include "nereid/server.h"
#include "triton/core/tritonbackend.h"

namespace nereid::ensemble {

// What all requests of one ensemble share. Outlived by nothing that uses it: held by each request.
struct CallContext {
  TRITONSERVER_Server* server = nullptr;  // outlives the model
  std::shared_ptr<InflightLimiter> limiter;
  ResponseAllocator allocator;  // of StepBufferPolicy
};

class CoreModels : public StepModels {
 public:
  // `client` is released only after every step has been.
  CoreModels(std::shared_ptr<const CallContext> context, std::shared_ptr<const Plan> plan,
             TRITONBACKEND_Request* client);

  Result<std::shared_ptr<StepCall>> Start(const StepRequest& request,
                                          std::shared_ptr<StepEvents> events) override;

 private:
  Status FillInputs(const StepRequest& request, InferRequest& target) const;
  Status RequestOutputs(const Step& step, InferRequest& target) const;
  // Null when the client's request is not traced.
  TRITONSERVER_InferenceTrace* ChildTrace() const;

  const std::shared_ptr<const CallContext> context_;
  const std::shared_ptr<const Plan> plan_;
  TRITONBACKEND_Request* const client_;
  const bool has_attributes_;  // to forward; asked once, since the steps start on other threads
  TRITONSERVER_InferenceTrace* trace_ = nullptr;  // the client's; null: it is not traced
};

}  // namespace nereid::ensemble
