// A model that answers requests by calling other models. backend.cc maps the entry points of the C
// API to this interface; each backend that is built from it defines LoadComposedModel.
#pragma once

#include <memory>
#include <string>

#include "backends/ensemble/cancellation_monitor.h"
#include "backends/ensemble/ensemble_config.h"
#include "nereid/server.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::ensemble {

class ComposedModel {
 public:
  virtual ~ComposedModel() = default;
  // Takes the request over; with an error it stays the caller's. Waits for no other model.
  // [any thread]
  virtual Status Execute(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) = 0;
};

// `monitor` outlives the model. [load thread]
Result<std::unique_ptr<ComposedModel>> LoadComposedModel(TRITONBACKEND_Model* model,
                                                         CancellationMonitor& monitor);

// Returns the JSON of the model's configuration.
Result<std::string> ConfigOf(TRITONBACKEND_Model* model);

// Returns the JSON of the configuration of a step's model. NOT_FOUND if the model is not loaded.
Result<std::string> ConfigOfStep(const Server& server, const StepConfig& step);

}  // namespace nereid::ensemble
