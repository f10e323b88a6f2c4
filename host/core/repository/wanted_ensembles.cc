#include "host/core/repository/wanted_ensembles.h"

#include <algorithm>
#include <vector>

namespace nereid {

WantedEnsembles::Plans WantedEnsembles::Want(const std::map<std::string, ModelPlan>& plans) {
  Plans kept;
  for (const auto& [name, plan] : plans) {
    kept[name] = std::make_shared<const ModelPlan>(plan.steps.empty() ? ModelPlan() : plan);
  }
  std::lock_guard lock(mutex_);
  for (const auto& [name, plan] : kept) entries_[name].asked = plan;
  return kept;
}

void WantedEnsembles::Loaded(const std::string& name, const Plan& plan) {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  if (it == entries_.end()) return;  // unloaded meanwhile
  it->second.served = plan;
  if (it->second.asked == plan && plan->steps.empty()) entries_.erase(it);
}

void WantedEnsembles::Failed(const std::string& name, const Plan& plan, bool serves) {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  if (it == entries_.end() || it->second.asked != plan) return;
  if (serves) it->second.asked = it->second.served;
  if (it->second.asked == nullptr || it->second.asked->steps.empty()) entries_.erase(it);
}

void WantedEnsembles::Forget(const std::string& name) {
  std::lock_guard lock(mutex_);
  entries_.erase(name);
}

void WantedEnsembles::Forget(const std::string& name, const Plan& plan) {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  if (it != entries_.end() && it->second.asked == plan) entries_.erase(it);
}

void WantedEnsembles::Clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
}

bool WantedEnsembles::IsWanted(const std::string& name, const Plan& plan) const {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  return it != entries_.end() && it->second.asked == plan;
}

std::optional<std::string> WantedEnsembles::LastOfCircle(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return CallerInCircle(name);
}

// [holding mutex_]
std::optional<std::string> WantedEnsembles::CallerInCircle(const std::string& name) const {
  std::set<std::string> seen;
  std::vector<std::string> left = {name};
  while (!left.empty()) {
    const auto it = entries_.find(left.back());
    left.pop_back();
    if (it == entries_.end()) continue;
    for (const std::string& step : it->second.asked->steps) {
      if (step == name) return it->first;
      if (seen.insert(step).second) left.push_back(step);
    }
  }
  return std::nullopt;
}

WantedEnsembles::Plans WantedEnsembles::CallersOf(const std::set<std::string>& steps) const {
  const auto is_one = [&](const std::string& step) { return steps.count(step) > 0; };
  Plans callers;
  std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : entries_) {
    const std::vector<std::string>& calls = entry.asked->steps;
    if (std::none_of(calls.begin(), calls.end(), is_one) || CallerInCircle(name)) continue;
    callers.emplace(name, entry.asked);
  }
  return callers;
}

}  // namespace nereid
