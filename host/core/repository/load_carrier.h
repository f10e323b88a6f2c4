// Carries out a list of loads: steps before their ensembles, and after them the wanted ensembles
// that call what is new. [any thread]
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "host/core/repository/loaded_models.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/planner.h"
#include "host/core/repository/repository_list.h"
#include "host/core/repository/unloader.h"
#include "host/core/repository/wanted_ensembles.h"
#include "nereid/status.h"

namespace nereid {

class LoadCarrier {
 public:
  using Failures = std::map<std::string, Status>;

  // What is pointed to outlives this object.
  LoadCarrier(const RepositoryList* repositories, const Planner* planner, LoadedModels* loaded,
              WantedEnsembles* wanted, Unloader* unloader, ModelLifecycle* lifecycle)
      : repositories_(repositories),
        planner_(planner),
        loaded_(loaded),
        wanted_(wanted),
        unloader_(unloader),
        lifecycle_(lifecycle) {}

  // Loads what a caller asked for, moving what fails to the list's failures. Then wanted ensembles
  // that call what has been loaded are loaded anew; returns the failures of these.
  Failures Carry(LoadList* list);

 private:
  // Moves the ensembles that call themselves through others to the failures. `asked`: see
  // WantedEnsembles::Want.
  void RefuseCircles(const WantedEnsembles::Plans& asked, LoadList* list);
  // Loads in waves: a model when its steps are done. Returns what is new.
  std::set<std::string> Load(std::function<bool(const ModelPlan&)> may_start, LoadList* list);
  // `tried`: what has just been tried to load; `loaded`: what of it is new.
  Failures FollowSteps(const WantedEnsembles::Plans& tried, const std::set<std::string>& loaded);
  // The wanted ensembles that can follow now.
  WantedEnsembles::Plans Followers(const WantedEnsembles::Plans& tried,
                                   const std::set<std::string>& loaded);
  // Ends an ensemble whose steps are others than those that it was made for.
  void GiveUp(const ModelPlan& follower, const Status& reason);
  // A wanted ensemble that does not serve and whose folder is gone.
  bool IsForgettable(const ModelPlan& plan) const;

  const RepositoryList* const repositories_;
  const Planner* const planner_;
  LoadedModels* const loaded_;
  WantedEnsembles* const wanted_;
  Unloader* const unloader_;
  ModelLifecycle* const lifecycle_;
};

}  // namespace nereid
