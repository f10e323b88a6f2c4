// Takes models out of service, with the ensembles that call them and, where asked, the steps that
// only they called. [any thread]
#pragma once

#include <string>
#include <vector>

#include "host/core/repository/loaded_models.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/wanted_ensembles.h"

namespace nereid {

class Unloader {
 public:
  // What is pointed to outlives this object.
  Unloader(LoadedModels* loaded, WantedEnsembles* wanted, ModelLifecycle* lifecycle)
      : loaded_(loaded), wanted_(wanted), lifecycle_(lifecycle) {}

  // Ends `name` and the ensembles that call it, which stay wanted. With `dependents`: then the
  // steps of an ensemble too, unless they were asked for or another serving ensemble calls them.
  void TakeDown(const std::string& name, bool dependents);
  // All models, ensembles first: they hold requests to their steps.
  void TakeDownAll();

 private:
  // Lets the steps of an ensemble that nobody else wants follow it when it is unloaded; their
  // names.
  std::vector<std::string> ChainSteps(const std::string& ensemble);

  LoadedModels* const loaded_;
  WantedEnsembles* const wanted_;
  ModelLifecycle* const lifecycle_;
};

}  // namespace nereid
