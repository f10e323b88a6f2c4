// What was last loaded with success under each name: what the next load of it is compared with, and
// which ensembles call which steps. [any thread]
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "host/core/repository/agent_chain.h"
#include "host/core/repository/model_plan.h"

namespace nereid {

class LoadedModels {
 public:
  // In place of what was there, which leaves its agents unless a version of it stays.
  void Remember(const ModelPlan& plan, bool keeps_versions);
  // The model leaves service and its agents. No-op for unknown names.
  void Forget(const std::string& name);
  // Forgets all; returns the names of the ensembles among them.
  std::set<std::string> ForgetAll();

  // The folder is as it was, and the names of its steps mean the same models.
  bool IsUnchanged(const ModelPlan& plan) const;

  // By its name, since it was forgotten last.
  bool IsAskedFor(const std::string& name) const;
  std::vector<std::string> Names() const;
  std::vector<std::string> EnsemblesWith(const std::string& step) const;
  // The steps of an ensemble, which has none from now on.
  std::vector<std::string> TakeSteps(const std::string& ensemble);

 private:
  // Those under which its versions were loaded; one that is gone has ended by itself.
  using Agents = std::vector<std::weak_ptr<AgentChain>>;
  struct Loaded {
    uint64_t fingerprint = 0;
    bool is_overridden = false;  // a load call brought the configuration
    bool is_asked_for = false;
    std::vector<std::string> steps;
    Agents agents;
  };
  static void Unload(const Agents& agents);

  mutable std::mutex mutex_;  // guards models_
  std::map<std::string, Loaded> models_;
};

}  // namespace nereid
