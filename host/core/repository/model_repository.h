// The model repository: brings what serves to what should serve, at the start, on load and unload
// calls and on polls. With model namespacing, models are stored under qualified names (folders.h).
// Callers may use plain names, which then mean all models of that name. [any thread]
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "host/core/handle/parameter.h"
#include "host/core/repository/agents.h"
#include "host/core/repository/desired_state.h"
#include "host/core/repository/folders.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/plan.h"
#include "host/core/repository/status.h"
#include "nereid/status.h"

namespace nereid::core {

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
  // has. UNAVAILABLE if a load of the model is stalled.
  Status Unload(const std::string& name, bool dependents);
  // Unloads all models, except those that are being loaded; see ModelLifecycle::WaitUntilDestroyed.
  void UnloadAll();

  // Loads models that are new or changed on disk and unloads removed ones.
  Status Poll();

  // Adds or removes a repository. This neither loads nor unloads its models.
  Status Register(Repository repository) { return repositories_.Register(std::move(repository)); }
  Status Unregister(const std::string& path) { return repositories_.Unregister(path); }

  std::vector<IndexEntry> Index(bool ready_only) const;
  // Names and library paths of the loaded repository agents.
  std::map<std::string, std::string> Agents() const { return agents_.List(); }
  // True if every version that affects readiness serves.
  bool AllServing() const { return core::AllServing(lifecycle_->Statuses()); }

 private:
  using Failures = std::map<std::string, Status>;
  using MayStart = std::function<bool(const LoadPlan&)>;

  // Returns the keys that a caller's `name` means; a key that does not exist yet if there are none.
  std::set<std::string> ResolveNames(const std::string& name) const;
  Status LoadOne(const std::string& name, const std::vector<const Parameter*>& parameters);
  Status UnloadOne(const std::string& name, bool dependents);

  // ---- desired state -> plan ----
  // The plans of `names` and of the steps of ensembles among them, as required models.
  LoadList PlanAll(const std::vector<std::string>& names, bool is_poll) const;
  // Adds the plan of `name` or, if it has no version to load, the recorded error.
  void Add(const std::string& name, Result<LoadPlan> plan, bool is_requested, LoadList* list) const;
  // Adds the steps of the ensemble `name` of the list. A serving step that can no longer be read is
  // left out.
  void AddSteps(const std::vector<Repository>& repositories, const std::string& name,
                LoadList* list) const;
  // Records and logs that nothing of `name` can be loaded; returns the error for the caller.
  // `has_config`: its configuration is valid.
  Status RecordUnloadable(const std::string& name, const Status& reason, bool has_config,
                          bool is_required, bool is_poll) const;

  // ---- plan -> actions ----
  // Loads the plans of `list` and moves those that fail to its failures. Then reloads the requested
  // ensembles that call a newly loaded model, and returns their failures.
  Failures Reconcile(LoadList* list);
  // Loads each model once its steps are settled. A plan for which `may_start` returns false right
  // before its load is dropped; null: all may start. Returns the names with new versions.
  std::set<std::string> Execute(LoadList* list, const MayStart& may_start);
  // The loads of Execute. `interrupted`: ensembles one of whose steps was unloaded meanwhile.
  std::set<std::string> RunLoads(LoadList* list, const MayStart& may_start, LoadList* interrupted);
  // Runs the repository agents of each plan. A plan that they reject becomes a failure.
  void RunAgents(LoadList* list);
  // Moves the plan of `name` to the failures.
  void Reject(const std::string& name, const Status& status, LoadList* list);
  // `attempted`: the plans whose load has just ended; `loaded`: the names of those whose new
  // versions serve now.
  Failures ReloadCallers(const EnsemblePlans& attempted, const std::set<std::string>& loaded);
  // The requested ensembles that can be reloaded now.
  EnsemblePlans CallersToReload(const EnsemblePlans& attempted,
                                const std::set<std::string>& loaded);
  // Unloads the model and the ensembles that call it, which stay requested.
  Status UnloadWithCallers(const std::string& name, bool dependents);

  ModelLifecycle* const lifecycle_;
  const ConfigLookup rule_;
  const Serves serves_ = [this](const std::string& name) { return lifecycle_->IsServing(name); };
  RepositoryList repositories_;
  RepoAgents agents_;
  RequestedEnsembles requested_;
};

}  // namespace nereid::core
