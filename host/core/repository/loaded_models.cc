#include "host/core/repository/loaded_models.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nereid {

void LoadedModels::Unload(const Agents& agents) {
  for (const std::weak_ptr<AgentChain>& one : agents) {
    if (const std::shared_ptr<AgentChain> chain = one.lock()) chain->Unload();
  }
}

void LoadedModels::Remember(const ModelPlan& plan, bool keeps_versions) {
  Loaded loaded{plan.fingerprint, plan.overridden(), plan.is_asked_for, plan.steps, {}};
  if (plan.agents != nullptr) loaded.agents.push_back(plan.agents);
  Agents left;
  {
    std::lock_guard lock(mutex_);
    Loaded& known = models_[plan.load.name];
    Agents& others = keeps_versions ? loaded.agents : left;
    std::copy_if(known.agents.begin(), known.agents.end(), std::back_inserter(others),
                 [](const auto& chain) { return !chain.expired(); });
    loaded.is_asked_for |= known.is_asked_for;
    known = std::move(loaded);
  }
  Unload(left);
}

void LoadedModels::Forget(const std::string& name) {
  Agents agents;
  {
    std::lock_guard lock(mutex_);
    const auto it = models_.find(name);
    if (it == models_.end()) return;
    agents = std::move(it->second.agents);
    models_.erase(it);
  }
  Unload(agents);
}

std::set<std::string> LoadedModels::ForgetAll() {
  std::map<std::string, Loaded> models;
  {
    std::lock_guard lock(mutex_);
    models.swap(models_);
  }
  std::set<std::string> ensembles;
  for (const auto& [name, model] : models) {
    Unload(model.agents);
    if (!model.steps.empty()) ensembles.insert(name);
  }
  return ensembles;
}

bool LoadedModels::IsUnchanged(const ModelPlan& plan) const {
  std::lock_guard lock(mutex_);
  const auto it = models_.find(plan.load.name);
  if (it == models_.end() || it->second.fingerprint != plan.fingerprint) return false;
  // What a load call brought in place of the configuration stays, as in Triton, until the folder
  // changes.
  return it->second.is_overridden || it->second.steps == plan.steps;
}

bool LoadedModels::IsAskedFor(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto it = models_.find(name);
  return it != models_.end() && it->second.is_asked_for;
}

std::vector<std::string> LoadedModels::Names() const {
  std::vector<std::string> names;
  std::lock_guard lock(mutex_);
  for (const auto& [name, model] : models_) names.push_back(name);
  return names;
}

std::vector<std::string> LoadedModels::EnsemblesWith(const std::string& step) const {
  std::vector<std::string> ensembles;
  std::lock_guard lock(mutex_);
  for (const auto& [name, model] : models_) {
    if (std::find(model.steps.begin(), model.steps.end(), step) != model.steps.end()) {
      ensembles.push_back(name);
    }
  }
  return ensembles;
}

std::vector<std::string> LoadedModels::TakeSteps(const std::string& ensemble) {
  std::lock_guard lock(mutex_);
  const auto it = models_.find(ensemble);
  if (it == models_.end()) return {};
  return std::exchange(it->second.steps, {});
}

}  // namespace nereid
