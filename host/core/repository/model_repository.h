// Which models there should be: scans the repositories, orders loads so that an ensemble follows
// its steps, carries out load, unload and poll, and answers the index. The lifecycle does the
// loading. Where repositories are namespaces, models are kept under qualified names (model_name.h):
// callers may say a plain one, which then means every model of that name. [any thread]
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/parameter.h"
#include "nereid/status.h"
#include "repository/model_lifecycle.h"
#include "repository/model_plan.h"
#include "repository/scan.h"
#include "repository/wanted_ensembles.h"

namespace nereid {

struct IndexEntry {
  static constexpr int64_t kNoVersion = -1;  // known, never asked to load
  std::string name;                          // the model's own
  int64_t version = kNoVersion;
  VersionStatus status;
};

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
  // With `dependents`: the steps of an ensemble too, unless another serving ensemble calls them.
  // Ensembles that call an unloaded model go with it, and come back when it is loaded again.
  // A name that no repository and no earlier load knows is no error.
  Status Unload(const std::string& name, bool dependents);
  // Takes every model out of service; see ModelLifecycle::WaitUntilGone.
  void UnloadAll();

  // Loads what is new or changed on disk, unloads what was removed.
  Status Poll();

  // Adds or removes a repository; its models are not loaded or unloaded by that.
  Status Register(Repository repository);
  Status Unregister(const std::string& path);

  std::vector<IndexEntry> Index(bool ready_only) const;
  // Names and libraries of the repository agents that are loaded.
  std::map<std::string, std::string> Agents() const { return agents_.List(); }
  // Every model that was asked to serve does.
  bool AllServing() const;

 private:
  using Names = std::vector<std::string>;
  using Plans = std::map<std::string, ModelPlan>;
  using Failures = std::map<std::string, Status>;

  std::vector<Repository> Repositories() const;
  // What a caller's `name` means: names of plans. Itself where nothing has that name.
  Names KeptNames(const std::string& name) const;
  bool HasNamespaces() const;
  Status LoadOne(const std::string& name, const std::vector<const Parameter*>& parameters);
  Status UnloadOne(const std::string& name, bool dependents);
  // Ends `name` and the ensembles that call it, which stay wanted.
  void TakeDown(const std::string& name, bool dependents);
  // Below, `by_request`: for a client, see ModelLifecycle::RecordFailure.
  // Plans `names`, each once, and the steps of ensembles among them.
  void AddPlans(const std::vector<std::string>& names, const std::vector<Repository>& repositories,
                Plans* plans, Failures* failures) const;
  void AddPlan(const std::string& name, Result<ModelPlan> plan, bool by_request, Plans* plans,
               Failures* failures) const;
  Status FailedPlan(const std::string& name, const Status& reason, bool by_request) const;
  // Plans what the ensemble `name` calls and what does not serve yet.
  void AddSteps(const std::string& name, const std::vector<Repository>& repositories,
                bool by_request, Plans* plans, Failures* failures) const;
  // Moves the ensembles that call themselves through others to `failures`. `asked`: see Want.
  void RefuseCircles(const WantedEnsembles::Plans& asked, bool by_request, Plans* plans,
                     Failures* failures);
  // Moves the plans that a repository agent refuses to `failures`.
  void ApplyAgentsTo(bool by_request, Plans* plans, Failures* failures);
  // Loads what a caller asked for. Moves what fails to `failures`. Then wanted ensembles that call
  // what has been loaded are loaded anew; returns the failures of these.
  Failures Carry(Plans plans, bool by_request, Failures* failures);
  // Loads in waves: a model when its steps are done. Returns what is new.
  std::set<std::string> LoadPlans(Plans plans, bool by_request,
                                  std::function<bool(const ModelPlan&)> may_start,
                                  Failures* failures);
  // `tried`: what has just been tried to load; `loaded`: what of it is new.
  Failures FollowSteps(const WantedEnsembles::Plans& tried, const std::set<std::string>& loaded);
  // The wanted ensembles that can follow now.
  WantedEnsembles::Plans Followers(const WantedEnsembles::Plans& tried,
                                   const std::set<std::string>& loaded);
  // A wanted ensemble that does not serve and whose folder is gone.
  bool IsForgettable(const ModelPlan& plan) const;
  bool IsCurrent(const ModelPlan& plan) const;
  // True when nothing but the number and place of instances tells the plan from what serves.
  bool ChangesInstancesAlone(const ModelPlan& plan) const;
  void Remember(const ModelPlan& plan);
  std::vector<std::string> EnsemblesWith(const std::string& step) const;
  // Lets the steps of an ensemble that no other one calls follow it when it is unloaded; their
  // names.
  std::vector<std::string> ChainSteps(const std::string& ensemble);
  void Forget(const std::string& name);
  // Makes a failure known that happened before any version was loaded.
  void RecordFailure(const std::string& name, const Status& status, bool by_request = false) const;
  static Status Summarise(const Failures& failures);

  const ConfigRule config_rule_;
  RepoAgents agents_;
  ModelLifecycle* const lifecycle_;
  WantedEnsembles wanted_;

  struct Loaded {
    uint64_t fingerprint = 0;
    std::vector<std::string> steps;
    std::shared_ptr<AgentChain> agents;
    uint64_t files_fingerprint = 0;
    std::vector<int64_t> versions;
    ModelConfig config;  // as read
  };
  mutable std::mutex mutex_;  // guards the members below
  std::vector<Repository> repositories_;
  std::map<std::string, Loaded> loaded_;  // as last loaded with success
};

}  // namespace nereid
