// Executes a list of loads: steps before their ensembles, and afterwards reloads the requested
// ensembles that call a newly loaded model. [any thread]
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "host/core/repository/load_planner.h"
#include "host/core/repository/loaded_models.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/model_unloader.h"
#include "host/core/repository/requested_ensembles.h"
#include "host/core/repository/scan.h"
#include "nereid/status.h"

namespace nereid::core {

class LoadExecution {
 public:
  using Failures = std::map<std::string, Status>;

  // All pointers must outlive this object.
  LoadExecution(const RepositoryList* repositories, const LoadPlanner* planner,
                LoadedModels* loaded, RequestedEnsembles* requested_ensembles,
                ModelUnloader* unloader, ModelLifecycle* lifecycle)
      : repositories_(repositories),
        load_planner_(planner),
        loaded_(loaded),
        requested_ensembles_(requested_ensembles),
        unloader_(unloader),
        lifecycle_(lifecycle) {}

  // Loads the plans of `list` and moves those that fail to its failures. Then reloads the requested
  // ensembles that call a newly loaded model, and returns their failures.
  Failures Run(LoadList* list);

 private:
  // Moves the ensembles that form a cycle to the failures. `requested`: the result of
  // RequestedEnsembles::MarkRequested.
  void RejectCycles(const RequestedEnsembles::Plans& requested, LoadList* list);
  // Moves the ensembles that are nested deeper than kMaxEnsembleDepth to the failures.
  void RejectDeepEnsembles(LoadList* list);
  // Loads each model once its steps are settled. Returns the names with new versions.
  std::set<std::string> Load(std::function<bool(const LoadPlan&)> may_start, LoadList* list);
  // `attempted`: the plans that were just loaded; `loaded`: the names among them that have new
  // versions.
  Failures ReloadCallers(const RequestedEnsembles::Plans& attempted,
                         const std::set<std::string>& loaded);
  // The requested ensembles that can be reloaded now.
  RequestedEnsembles::Plans CallersToReload(const RequestedEnsembles::Plans& attempted,
                                            const std::set<std::string>& loaded);
  // Unloads an ensemble that failed to reload after its steps were replaced, and records `reason`.
  void UnloadFailedCaller(const LoadPlan& caller, const Status& reason);
  // True if the ensemble does not serve and its directory no longer exists.
  bool IsRemoved(const LoadPlan& plan) const;

  const RepositoryList* const repositories_;
  const LoadPlanner* const load_planner_;
  LoadedModels* const loaded_;
  RequestedEnsembles* const requested_ensembles_;
  ModelUnloader* const unloader_;
  ModelLifecycle* const lifecycle_;
};

}  // namespace nereid::core
