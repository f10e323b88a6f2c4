// Which models there should be: carries out load, unload and poll, and answers the index. The parts
// beside it do the work: a planner reads the folders, a carrier loads so that an ensemble follows
// its steps, an unloader ends. Where repositories are namespaces, models are kept under qualified
// names (model_name.h): callers may say a plain one, which then means every model of that name.
// [any thread]
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "host/core/handle/parameter.h"
#include "host/core/repository/load_carrier.h"
#include "host/core/repository/loaded_models.h"
#include "host/core/repository/model_index.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/planner.h"
#include "host/core/repository/repository_list.h"
#include "host/core/repository/unloader.h"
#include "host/core/repository/wanted_ensembles.h"
#include "nereid/status.h"

namespace nereid {

class ModelRepository {
 public:
  // `lifecycle` outlives this object. `agent_dirs`: where repository agents lie.
  ModelRepository(std::vector<Repository> repositories, ConfigRule rule, ModelLifecycle* lifecycle,
                  std::vector<std::string> agent_dirs = {});

  // Start-up: loads every model of the repositories, or those named and the steps of their
  // ensembles. Returns when all have loaded or failed; INTERNAL lists the failures, which keep no
  // other model from serving.
  Status LoadAll();
  Status LoadNamed(const std::vector<std::string>& names);

  // Explicit control. An unchanged model that serves is left alone.
  Status Load(const std::string& name, const std::vector<const Parameter*>& parameters);
  // With `dependents`: the steps of an ensemble too, unless they were asked for by name or another
  // serving ensemble calls them.
  // Ensembles that call an unloaded model go with it, and come back when it is loaded again.
  // A name that no repository and no earlier load knows is no error.
  Status Unload(const std::string& name, bool dependents);
  // Takes every model out of service; see ModelLifecycle::WaitUntilGone.
  void UnloadAll() { unloader_.TakeDownAll(); }

  // Loads what is new or changed on disk, unloads what was removed.
  Status Poll();

  // Adds or removes a repository; its models are not loaded or unloaded by that.
  Status Register(Repository repository) { return repositories_.Register(std::move(repository)); }
  Status Unregister(const std::string& path) { return repositories_.Unregister(path); }

  std::vector<IndexEntry> Index(bool ready_only) const;
  // Names and libraries of the repository agents that are loaded.
  std::map<std::string, std::string> Agents() const { return agents_.List(); }
  // Every model that was asked to serve does.
  bool AllServing() const;

 private:
  // What a caller's `name` means: names of plans. Itself where nothing has that name.
  std::set<std::string> KeptNames(const std::string& name) const;
  Status LoadOne(const std::string& name, const std::vector<const Parameter*>& parameters);
  Status UnloadOne(const std::string& name, bool dependents);
  bool IsCurrent(const ModelPlan& plan) const;
  static Status Summarise(const LoadCarrier::Failures& failures);

  ModelLifecycle* const lifecycle_;
  RepositoryList repositories_;
  RepoAgents agents_;
  LoadedModels loaded_;
  WantedEnsembles wanted_;
  const Planner planner_;
  Unloader unloader_;
  LoadCarrier carrier_;
};

}  // namespace nereid
