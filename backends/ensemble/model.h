// A loaded ensemble model: the validated graph and the state that its requests share. Created on a
// load thread and then read by every request; only plans for subsets of the outputs are added
// later.
#pragma once

#include <memory>

#include "backends/ensemble/cancellation_monitor.h"
#include "backends/ensemble/capi_step_models.h"
#include "backends/ensemble/composed_model.h"
#include "backends/ensemble/plan_cache.h"
#include "triton/core/tritonbackend.h"

namespace nereid::ensemble {

class EnsembleModel : public ComposedModel {
 public:
  // Reads the configuration, validates it against the steps' models, which are already loaded, and
  // marks the model decoupled if a step is. `monitor` outlives the model. [load thread]
  static Result<std::unique_ptr<ComposedModel>> Load(TRITONBACKEND_Model* model,
                                                     CancellationMonitor& monitor);

  Status Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) override;

 private:
  EnsembleModel(std::shared_ptr<const Graph> graph, std::shared_ptr<const CallContext> context,
                CancellationMonitor& monitor);

  PlanCache plans_;
  const std::shared_ptr<const CallContext> context_;
  CancellationMonitor& monitor_;
};

}  // namespace nereid::ensemble
