// A loaded ensemble model: the validated graph and the state that its requests share. Created on a
// load thread and then read by every request; only plans for subsets of the outputs are added
// later.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/ensemble/cancellation_monitor.h"
#include "backends/ensemble/capi_step_models.h"
#include "triton/core/tritonbackend.h"

namespace nereid::ensemble {

class EnsembleModel {
 public:
  // Reads the configuration, validates it against the steps' models, which are already loaded, and
  // marks the model decoupled if a step is. `monitor` outlives the model. [load thread]
  static Result<std::unique_ptr<EnsembleModel>> Load(TRITONBACKEND_Model* model,
                                                     CancellationMonitor& monitor);

  // Takes the request over; with an error it stays the caller's. [any thread]
  Status Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request);

 private:
  EnsembleModel(std::shared_ptr<const Graph> graph, std::shared_ptr<const CallContext> context,
                CancellationMonitor& monitor);

  Result<std::shared_ptr<const Plan>> PlanFor(TRITONBACKEND_Request* request);

  const std::shared_ptr<const Graph> graph_;
  const std::shared_ptr<const CallContext> context_;
  CancellationMonitor& monitor_;
  std::shared_ptr<const Plan> full_plan_;  // for all outputs

  std::mutex mutex_;  // guards plans_
  std::map<std::vector<int>, std::shared_ptr<const Plan>>
      plans_;  // by requested outputs; limited in number
};

}  // namespace nereid::ensemble
