// From names to a list of what is to be loaded for them, and of what cannot be: whose failure the
// log and the index have then. [any thread]
#pragma once

#include <map>
#include <string>
#include <vector>

#include "host/core/handle/parameter.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/model_plan.h"
#include "host/core/repository/repository_list.h"
#include "nereid/status.h"

namespace nereid {

// By name; none is in both.
struct LoadList {
  std::map<std::string, ModelPlan> plans;
  std::map<std::string, Status> failures;
};

class Planner {
 public:
  // What is pointed to outlives this object.
  Planner(ConfigRule rule, const RepositoryList* repositories, RepoAgents* agents,
          ModelLifecycle* lifecycle)
      : rule_(std::move(rule)),
        repositories_(repositories),
        agents_(agents),
        lifecycle_(lifecycle) {}

  // Each of `names`, and the steps of ensembles among them.
  LoadList PlanAll(const std::vector<std::string>& names) const;
  // One model for a client, without its steps.
  Result<ModelPlan> Plan(const std::string& name,
                         const std::vector<const Parameter*>& parameters) const;
  // Adds what the ensemble `name` of the list calls. A step that serves and cannot be planned any
  // more is left out.
  void AddSteps(const std::string& name, LoadList* list) const;
  // Lets the repository agents act on each plan; one that they refuse becomes a failure.
  void ApplyAgents(LoadList* list) const;

 private:
  // As the steps of an ensemble in `repositories`.
  void AddStepsFrom(const std::vector<Repository>& repositories, const std::string& name,
                    LoadList* list) const;
  void Add(const std::string& name, Result<ModelPlan> plan, LoadList* list) const;
  // The plan where there is something to load, or why not.
  Result<ModelPlan> Checked(const std::string& name, Result<ModelPlan> plan) const;
  Status FailUnread(const std::string& name, const Status& reason) const;
  Status FailWithoutVersion(const std::string& name, const Status& reason) const;
  // Makes a failure known that happened before any version was loaded. False when there is no
  // folder for it.
  bool RecordFailure(const std::string& name, const Status& status, bool is_missed) const;

  const ConfigRule rule_;
  const RepositoryList* const repositories_;
  RepoAgents* const agents_;
  ModelLifecycle* const lifecycle_;
};

}  // namespace nereid
