// The last successful load of each name. The next load is compared with it, and it records which
// ensembles call which steps. [any thread]
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "host/core/repository/agent_chain.h"
#include "host/core/repository/load_plan.h"

namespace nereid::core {

class LoadedModels {
 public:
  // Replaces the entry of the name. Agents of the previous load are notified of the unload unless
  // one of its versions still serves (`keeps_versions`).
  void Record(const LoadPlan& plan, bool keeps_versions);
  // Erases the entry and notifies its agents of the unload. No-op for unknown names.
  void Erase(const std::string& name);
  // Erases all entries; returns the names of the ensembles among them.
  std::set<std::string> EraseAll();

  // True if the directory is unchanged and its steps resolve to the same models.
  bool IsUnchanged(const LoadPlan& plan) const;

  // True if the model was loaded by its own name since it was last erased.
  bool IsRequested(const std::string& name) const;
  std::vector<std::string> Names() const;
  std::vector<std::string> EnsemblesCalling(const std::string& step) const;
  // Removes and returns the steps of an ensemble.
  std::vector<std::string> DetachSteps(const std::string& ensemble);

 private:
  // The agent chains of the model's versions. An expired chain has finished by itself.
  using Agents = std::vector<std::weak_ptr<AgentChain>>;
  struct Entry {
    uint64_t fingerprint = 0;
    bool is_overridden = false;  // the configuration came with a load call
    bool is_requested = false;
    std::vector<std::string> steps;
    Agents agents;
  };
  static void NotifyUnload(const Agents& agents);

  mutable std::mutex mutex_;  // guards models_
  std::map<std::string, Entry> models_;
};

}  // namespace nereid::core
