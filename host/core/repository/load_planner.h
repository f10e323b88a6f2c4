// Creates load lists: the plans for a set of names, and the failures of names that cannot be
// planned. Failures are logged and recorded for the index. [any thread]
#pragma once

#include <map>
#include <string>
#include <vector>

#include "host/core/handle/parameter.h"
#include "host/core/repository/load_plan.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/scan.h"
#include "nereid/status.h"

namespace nereid::core {

// Both maps are keyed by name; a name is in at most one of them.
struct LoadList {
  bool is_poll = false;  // see FailureLog
  std::map<std::string, LoadPlan> plans;
  std::map<std::string, Status> failures;
};

class LoadPlanner {
 public:
  // All pointers must outlive this object.
  LoadPlanner(ConfigLookup rule, const RepositoryList* repositories, RepoAgents* agents,
              ModelLifecycle* lifecycle)
      : rule_(std::move(rule)),
        repositories_(repositories),
        agents_(agents),
        lifecycle_(lifecycle) {}

  // Plans each of `names` and the steps of ensembles among them, as required models (see
  // ModelLifecycle::Plan). `is_poll`: see FailureLog.
  LoadList PlanAll(const std::vector<std::string>& names, bool is_poll) const;
  // Plans one model that a client requested, without its steps.
  Result<LoadPlan> Plan(const std::string& name,
                        const std::vector<const Parameter*>& parameters) const;
  // Adds the steps of the ensemble `name` of the list. A serving step that can no longer be planned
  // is left out.
  void AddSteps(const std::string& name, LoadList* list) const;
  // Runs the repository agents of each plan. A plan that they reject becomes a failure.
  void ApplyAgents(LoadList* list) const;

 private:
  // AddSteps with the models of `repositories`.
  void AddStepsFrom(const std::vector<Repository>& repositories, const std::string& name,
                    bool is_required, LoadList* list) const;
  void Add(const std::string& name, Result<LoadPlan> plan, bool is_required, LoadList* list) const;
  // Returns the plan if it has a version to load, otherwise the recorded error.
  Result<LoadPlan> CheckPlan(const std::string& name, Result<LoadPlan> plan, bool is_required,
                             bool is_poll) const;
  Status FailUnreadable(const std::string& name, const Status& reason, bool is_poll) const;
  Status FailWithoutVersion(const std::string& name, const Status& reason, bool is_required,
                            bool is_poll) const;
  // Records a failure that happened before any version was loaded. Returns the fingerprint of the
  // model's directory; 0 if the model has no unique one.
  uint64_t RecordFailure(const std::string& name, const Status& status,
                         bool affects_readiness) const;

  const ConfigLookup rule_;
  const RepositoryList* const repositories_;
  RepoAgents* const agents_;
  ModelLifecycle* const lifecycle_;
};

}  // namespace nereid::core
