// The model repository: implements load, unload, poll and the model index. LoadPlanner reads the
// directories, LoadExecution loads models and their callers, ModelUnloader unloads. With model
// namespacing, models are stored under qualified names (model_name.h). Callers may use plain names,
// which then mean all models of that name. [any thread]
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "host/core/handle/parameter.h"
#include "host/core/repository/load_execution.h"
#include "host/core/repository/load_planner.h"
#include "host/core/repository/loaded_models.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/model_unloader.h"
#include "host/core/repository/requested_ensembles.h"
#include "host/core/repository/scan.h"
#include "nereid/status.h"

namespace nereid::core {

// An entry of the model index: the list of all models that a client may request.
struct IndexEntry {
  static constexpr int64_t kNoVersion = -1;  // in a repository, but never requested to load
  std::string name;                          // the plain name
  int64_t version = kNoVersion;
  VersionStatus status;
};

class ModelRepository {
 public:
  // `lifecycle` must outlive this object. `agent_dirs`: directories searched for repository agents.
  ModelRepository(std::vector<Repository> repositories, ConfigLookup rule,
                  ModelLifecycle* lifecycle, std::vector<std::string> agent_dirs = {});

  // Start-up: LoadAll loads every model of the repositories, LoadNamed the named models and the
  // steps of their ensembles. They return when all models have loaded or failed. INTERNAL lists the
  // failures; the other models serve nevertheless.
  Status LoadAll();
  Status LoadNamed(const std::vector<std::string>& names);

  // Explicit model control. A serving model that is unchanged is not loaded again.
  Status Load(const std::string& name, const std::vector<const Parameter*>& parameters);
  // With `dependents`, also unloads the steps of an ensemble, unless they were requested by name or
  // another serving ensemble calls them. Ensembles that call an unloaded model are unloaded with
  // it, and loaded again when the model is. NOT_FOUND for a name that no repository and no load
  // has.
  Status Unload(const std::string& name, bool dependents);
  // Unloads all models; see ModelLifecycle::WaitUntilDestroyed.
  void UnloadAll() { unloader_.UnloadAll(); }

  // Loads models that are new or changed on disk and unloads removed ones.
  Status Poll();

  // Adds or removes a repository. This neither loads nor unloads its models.
  Status Register(Repository repository) { return repositories_.Register(std::move(repository)); }
  Status Unregister(const std::string& path) { return repositories_.Unregister(path); }

  std::vector<IndexEntry> Index(bool ready_only) const;
  // Names and library paths of the loaded repository agents.
  std::map<std::string, std::string> Agents() const { return agents_.List(); }
  // True if every version that affects readiness serves.
  bool AllServing() const;

 private:
  // Returns the keys that a caller's `name` means; a key that does not exist yet if there are none.
  std::set<std::string> ResolveNames(const std::string& name) const;
  Status LoadOne(const std::string& name, const std::vector<const Parameter*>& parameters);
  Status UnloadOne(const std::string& name, bool dependents);
  bool IsCurrent(const LoadPlan& plan) const;
  static Status SummarizeFailures(const LoadExecution::Failures& failures);

  ModelLifecycle* const lifecycle_;
  RepositoryList repositories_;
  RepoAgents agents_;
  LoadedModels loaded_;
  RequestedEnsembles requested_ensembles_;
  const LoadPlanner load_planner_;
  ModelUnloader unloader_;
  LoadExecution load_execution_;
};

}  // namespace nereid::core
