// The ensembles that were asked to serve, whether they do or wait for a step, as planned: what
// follows when a step is loaded. [any thread]
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "host/core/repository/model_plan.h"

namespace nereid {

class WantedEnsembles {
 public:
  using Plan = std::shared_ptr<const ModelPlan>;
  using Plans = std::map<std::string, Plan>;

  // A caller loads `plans`, ensembles or not: from now on they are wanted instead of what was under
  // their names. Returns them as they are kept here, for the calls below.
  Plans Want(const std::map<std::string, ModelPlan>& plans);
  // How that ended. No-ops for a plan that is no longer the wanted one. An ensemble that failed
  // goes on waiting for its steps; where the model that it should replace `serves` on, that one is
  // wanted again.
  void Loaded(const std::string& name, const Plan& plan);
  void Failed(const std::string& name, const Plan& plan, bool serves);

  void Forget(const std::string& name);
  // Unless another plan is wanted by now.
  void Forget(const std::string& name, const Plan& plan);
  void Clear();

  bool IsWanted(const std::string& name, const Plan& plan) const;
  // Where the steps of the wanted ensembles lead from `name` back to it: the one that calls it.
  std::optional<std::string> LastOfCircle(const std::string& name) const;
  // Those that call one of `steps` and do not call themselves.
  Plans CallersOf(const std::set<std::string>& steps) const;

 private:
  struct Entry {
    Plan asked;   // an empty plan while a model that is no ensemble is being loaded
    Plan served;  // as last loaded with success; null before
  };
  std::optional<std::string> CallerInCircle(const std::string& name) const;

  mutable std::mutex mutex_;  // guards entries_
  std::map<std::string, Entry> entries_;
};

}  // namespace nereid
