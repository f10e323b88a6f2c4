// Unloads models with the ensembles that call them and, on request, the steps that only they
// called. [any thread]
#pragma once

#include <string>
#include <vector>

#include "host/core/repository/loaded_models.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/requested_ensembles.h"

namespace nereid::core {

class ModelUnloader {
 public:
  // All pointers must outlive this object.
  ModelUnloader(LoadedModels* loaded, RequestedEnsembles* requested_ensembles,
                ModelLifecycle* lifecycle)
      : loaded_(loaded), requested_ensembles_(requested_ensembles), lifecycle_(lifecycle) {}

  // Unloads `name` and the ensembles that call it, which stay requested. With `dependents`, also
  // unloads the steps of an ensemble, unless they were requested by name or another serving
  // ensemble calls them. UNAVAILABLE if a load of the model is stalled.
  Status Unload(const std::string& name, bool dependents);
  // Unloads all models, except those that are being loaded. Ensembles come first, because they have
  // requests in flight to their steps.
  void UnloadAll();

 private:
  // Schedules the unload of the steps that no other ensemble or client uses, for after the
  // ensemble's unload. Returns their names.
  std::vector<std::string> ScheduleStepUnloads(const std::string& ensemble);

  LoadedModels* const loaded_;
  RequestedEnsembles* const requested_ensembles_;
  ModelLifecycle* const lifecycle_;
};

}  // namespace nereid::core
