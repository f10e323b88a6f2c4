#include "host/core/repository/requested_ensembles.h"

#include <algorithm>
#include <vector>

namespace nereid::core {

RequestedEnsembles::Plans RequestedEnsembles::MarkRequested(
    const std::map<std::string, LoadPlan>& plans) {
  Plans stored;
  for (const auto& [name, plan] : plans) {
    stored[name] = std::make_shared<const LoadPlan>(plan.steps.empty() ? LoadPlan() : plan);
  }
  std::lock_guard lock(mutex_);
  for (const auto& [name, plan] : stored) entries_[name].requested = plan;
  return stored;
}

void RequestedEnsembles::OnLoaded(const std::string& name, const Plan& plan) {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  if (it == entries_.end()) return;  // unloaded meanwhile
  it->second.loaded = plan;
  if (it->second.requested == plan && plan->steps.empty()) entries_.erase(it);
}

void RequestedEnsembles::OnFailed(const std::string& name, const Plan& plan, bool serves) {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  if (it == entries_.end() || it->second.requested != plan) return;
  if (serves) it->second.requested = it->second.loaded;
  if (it->second.requested == nullptr || it->second.requested->steps.empty()) entries_.erase(it);
}

void RequestedEnsembles::Erase(const std::string& name) {
  std::lock_guard lock(mutex_);
  entries_.erase(name);
}

void RequestedEnsembles::Erase(const std::string& name, const Plan& plan) {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  if (it != entries_.end() && it->second.requested == plan) entries_.erase(it);
}

void RequestedEnsembles::Clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
}

bool RequestedEnsembles::IsRequested(const std::string& name, const Plan& plan) const {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  return it != entries_.end() && it->second.requested == plan;
}

std::optional<std::string> RequestedEnsembles::FindCycle(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return CallerInCycle(name);
}

// [under mutex_]
std::optional<std::string> RequestedEnsembles::CallerInCycle(const std::string& name) const {
  std::set<std::string> seen;
  std::vector<std::string> pending = {name};
  while (!pending.empty()) {
    const auto it = entries_.find(pending.back());
    pending.pop_back();
    if (it == entries_.end()) continue;
    for (const std::string& step : it->second.requested->steps) {
      if (step == name) return it->first;
      if (seen.insert(step).second) pending.push_back(step);
    }
  }
  return std::nullopt;
}

std::map<std::string, size_t> RequestedEnsembles::Depths(const std::set<std::string>& names) const {
  std::lock_guard lock(mutex_);
  std::map<std::string, size_t> depths;  // 0: visited, but not yet known
  const auto find = [&](const std::string& name) {
    const auto it = entries_.find(name);
    return it == entries_.end() || it->second.requested->steps.empty() ? nullptr : &it->second;
  };
  // Not recursive, because the chain may have any length. A name is pushed once to visit its steps
  // and then once to add them up.
  std::vector<std::string> pending;
  for (const std::string& name : names) pending.push_back(name);
  while (!pending.empty()) {
    const std::string name = pending.back();
    const Entry* const entry = find(name);
    const auto [depth, is_new] = depths.try_emplace(name, 0);
    if (entry != nullptr && is_new) {
      for (const std::string& step : entry->requested->steps) {
        if (depths.count(step) == 0) pending.push_back(step);
      }
      continue;
    }
    pending.pop_back();
    if (entry == nullptr || depth->second > 0) continue;
    size_t deepest = 0;
    for (const std::string& step : entry->requested->steps) {
      deepest = std::max(deepest, depths.at(step));
    }
    depth->second = deepest + 1;
  }
  std::erase_if(depths, [&](const auto& each) {
    return names.count(each.first) == 0 || find(each.first) == nullptr;
  });
  return depths;
}

RequestedEnsembles::Plans RequestedEnsembles::CallersOf(const std::set<std::string>& steps) const {
  const auto is_loaded_step = [&](const std::string& step) { return steps.count(step) > 0; };
  Plans callers;
  std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : entries_) {
    const std::vector<std::string>& calls = entry.requested->steps;
    if (std::none_of(calls.begin(), calls.end(), is_loaded_step) || CallerInCycle(name)) continue;
    callers.emplace(name, entry.requested);
  }
  return callers;
}

}  // namespace nereid::core
