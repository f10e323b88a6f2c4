// An ensemble model as it is loaded: the validated graph and what its requests share. Made on a
// load thread, then read by every request; only the plans for subsets of outputs are added
// later.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/ensemble/cancel_watch.h"
#include "backends/ensemble/core_models.h"
#include "triton/core/tritonbackend.h"

namespace nereid::ensemble {

class EnsembleModel {
 public:
  // Reads the configuration, checks it against the steps' models (which are loaded already) and
  // marks the model decoupled when a step is. `watch` outlives the model. [load thread]
  static Result<std::unique_ptr<EnsembleModel>> Load(TRITONBACKEND_Model* model,
                                                     CancelWatch& watch);

  // Takes the request over; on error it stays the caller's. [any thread]
  Status Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request);

 private:
  EnsembleModel(std::shared_ptr<const Graph> graph, std::shared_ptr<const CallContext> context,
                CancelWatch& watch);

  Result<std::shared_ptr<const Plan>> PlanFor(TRITONBACKEND_Request* request);

  const std::shared_ptr<const Graph> graph_;
  const std::shared_ptr<const CallContext> context_;
  CancelWatch& watch_;
  std::shared_ptr<const Plan> whole_;  // every output

  std::mutex mutex_;                                               // guards plans_
  std::map<std::vector<int>, std::shared_ptr<const Plan>> plans_;  // by requested outputs, bounded
};

}  // namespace nereid::ensemble
