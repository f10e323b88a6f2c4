#include "repository/loaded_models.h"

#include <algorithm>
#include <utility>

#include "config/config_loader.h"

namespace nereid {

void LoadedModels::Remember(const ModelPlan& plan) {
  Loaded loaded{plan.fingerprint,       plan.overridden(),  plan.steps,      plan.agents,
                plan.files_fingerprint, plan.load.versions, plan.load.config};
  {
    std::lock_guard lock(mutex_);
    std::swap(models_[plan.load.name], loaded);
  }
  if (loaded.agents != nullptr) loaded.agents->Unload();
}

void LoadedModels::Forget(const std::string& name) {
  std::shared_ptr<AgentChain> agents;
  {
    std::lock_guard lock(mutex_);
    const auto it = models_.find(name);
    if (it == models_.end()) return;
    agents = std::move(it->second.agents);
    models_.erase(it);
  }
  if (agents != nullptr) agents->Unload();
}

std::set<std::string> LoadedModels::ForgetAll() {
  std::map<std::string, Loaded> models;
  {
    std::lock_guard lock(mutex_);
    models.swap(models_);
  }
  std::set<std::string> ensembles;
  for (const auto& [name, model] : models) {
    if (model.agents != nullptr) model.agents->Unload();
    if (!model.steps.empty()) ensembles.insert(name);
  }
  return ensembles;
}

bool LoadedModels::IsUnchanged(const ModelPlan& plan) const {
  std::lock_guard lock(mutex_);
  const auto it = models_.find(plan.load.name);
  return it != models_.end() && it->second.fingerprint == plan.fingerprint &&
         (it->second.is_overridden || it->second.steps == plan.steps);
}

bool LoadedModels::ChangesInstancesAlone(const ModelPlan& plan) const {
  if (plan.agents != nullptr || plan.load.files != nullptr) return false;
  std::lock_guard lock(mutex_);
  const auto it = models_.find(plan.load.name);
  if (it == models_.end()) return false;
  const Loaded& loaded = it->second;
  return loaded.agents == nullptr && loaded.files_fingerprint == plan.files_fingerprint &&
         loaded.versions == plan.load.versions &&
         config::DifferInInstanceGroupsAlone(loaded.config, plan.load.config);
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
