#include "host/core/repository/loaded_models.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nereid::core {

void LoadedModels::NotifyUnload(const Agents& agents) {
  for (const std::weak_ptr<AgentChain>& one : agents) {
    if (const std::shared_ptr<AgentChain> chain = one.lock()) chain->Unload();
  }
}

void LoadedModels::Record(const LoadPlan& plan, bool keeps_versions) {
  Entry entry{plan.fingerprint, plan.overridden(), plan.is_requested, plan.steps, {}};
  if (plan.agents != nullptr) entry.agents.push_back(plan.agents);
  Agents left;
  {
    std::lock_guard lock(mutex_);
    Entry& known = models_[plan.load.name];
    Agents& others = keeps_versions ? entry.agents : left;
    std::copy_if(known.agents.begin(), known.agents.end(), std::back_inserter(others),
                 [](const auto& chain) { return !chain.expired(); });
    entry.is_requested |= known.is_requested;
    known = std::move(entry);
  }
  NotifyUnload(left);
}

void LoadedModels::Erase(const std::string& name) {
  Agents agents;
  {
    std::lock_guard lock(mutex_);
    const auto it = models_.find(name);
    if (it == models_.end()) return;
    agents = std::move(it->second.agents);
    models_.erase(it);
  }
  NotifyUnload(agents);
}

std::set<std::string> LoadedModels::EraseAll() {
  std::map<std::string, Entry> models;
  {
    std::lock_guard lock(mutex_);
    models.swap(models_);
  }
  std::set<std::string> ensembles;
  for (const auto& [name, model] : models) {
    NotifyUnload(model.agents);
    if (!model.steps.empty()) ensembles.insert(name);
  }
  return ensembles;
}

bool LoadedModels::IsUnchanged(const LoadPlan& plan) const {
  std::lock_guard lock(mutex_);
  const auto it = models_.find(plan.load.name);
  if (it == models_.end() || it->second.fingerprint != plan.fingerprint) return false;
  // As in Triton, a configuration from a load call remains in use until the model's directory
  // changes.
  return it->second.is_overridden || it->second.steps == plan.steps;
}

bool LoadedModels::IsRequested(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto it = models_.find(name);
  return it != models_.end() && it->second.is_requested;
}

std::vector<std::string> LoadedModels::Names() const {
  std::vector<std::string> names;
  std::lock_guard lock(mutex_);
  for (const auto& [name, model] : models_) names.push_back(name);
  return names;
}

std::vector<std::string> LoadedModels::EnsemblesCalling(const std::string& step) const {
  std::vector<std::string> ensembles;
  std::lock_guard lock(mutex_);
  for (const auto& [name, model] : models_) {
    if (std::find(model.steps.begin(), model.steps.end(), step) != model.steps.end()) {
      ensembles.push_back(name);
    }
  }
  return ensembles;
}

std::vector<std::string> LoadedModels::DetachSteps(const std::string& ensemble) {
  std::lock_guard lock(mutex_);
  const auto it = models_.find(ensemble);
  if (it == models_.end()) return {};
  return std::exchange(it->second.steps, {});
}

}  // namespace nereid::core
