#include "host/core/repository/load_planner.h"

#include <algorithm>
#include <utility>

namespace nereid::core {

LoadList LoadPlanner::PlanAll(const std::vector<std::string>& names, bool is_poll) const {
  const std::vector<Repository> repositories = repositories_->All();
  std::vector<Result<LoadPlan>> made = PlanModels(repositories, names, rule_);
  LoadList list;
  list.is_poll = is_poll;
  for (size_t i = 0; i < names.size(); ++i) {
    if (made[i].ok()) made[i]->is_requested = true;
    Add(names[i], std::move(made[i]), /*is_required=*/true, &list);
  }
  for (const std::string& name : names) {
    AddStepsFrom(repositories, name, /*is_required=*/true, &list);
  }
  return list;
}

Result<LoadPlan> LoadPlanner::Plan(const std::string& name,
                                   const std::vector<const Parameter*>& parameters) const {
  Result<LoadPlan> plan = PlanModel(repositories_->All(), name, rule_, parameters);
  if (plan.ok()) plan->is_requested = true;
  return CheckPlan(name, std::move(plan), /*is_required=*/false, /*is_poll=*/false);
}

void LoadPlanner::AddSteps(const std::string& name, LoadList* list) const {
  AddStepsFrom(repositories_->All(), name, /*is_required=*/false, list);
}

void LoadPlanner::AddStepsFrom(const std::vector<Repository>& repositories, const std::string& name,
                               bool is_required, LoadList* list) const {
  // Not recursive, because ensembles may be nested to any depth before that is checked.
  std::vector<std::string> pending = {name};
  while (!pending.empty()) {
    const auto it = list->plans.find(pending.back());
    pending.pop_back();
    if (it == list->plans.end()) continue;
    for (const std::string& step : it->second.steps) {
      if (list->plans.count(step) > 0 || list->failures.count(step) > 0) continue;
      Result<LoadPlan> plan = PlanModel(repositories, step, rule_);
      // A serving step keeps serving if its directory is no longer readable.
      if (!plan.ok() && lifecycle_->IsServing(step)) continue;
      Add(step, std::move(plan), is_required, list);
      pending.push_back(step);
    }
  }
}

void LoadPlanner::Add(const std::string& name, Result<LoadPlan> plan, bool is_required,
                      LoadList* list) const {
  Result<LoadPlan> checked = CheckPlan(name, std::move(plan), is_required, list->is_poll);
  if (checked.ok()) {
    list->plans.emplace(name, std::move(checked).value());
  } else {
    list->failures.insert_or_assign(name, std::move(checked).status());
  }
}

void LoadPlanner::ApplyAgents(LoadList* list) const {
  for (auto it = list->plans.begin(); it != list->plans.end();) {
    const std::string& name = it->first;
    LoadPlan& plan = it->second;
    Status status = nereid::core::ApplyAgents(agents_, repositories_->All(), rule_, &plan);
    if (status.ok() && plan.version_error.ok()) {
      ++it;
      continue;
    }
    status = status.ok() ? FailWithoutVersion(name, plan.version_error, plan.load.is_required,
                                              list->is_poll)
                         : FailUnreadable(name, status, list->is_poll);
    list->failures.insert_or_assign(name, std::move(status));
    it = list->plans.erase(it);
  }
}

Result<LoadPlan> LoadPlanner::CheckPlan(const std::string& name, Result<LoadPlan> plan,
                                        bool is_required, bool is_poll) const {
  if (!plan.ok()) return FailUnreadable(name, plan.status(), is_poll);
  if (!plan->version_error.ok()) {
    return FailWithoutVersion(name, plan->version_error, is_required, is_poll);
  }
  plan->load.is_required = is_required;
  plan->load.is_poll = is_poll;
  return plan;
}

Status LoadPlanner::FailUnreadable(const std::string& name, const Status& reason,
                                   bool is_poll) const {
  const bool is_found = !reason.message().starts_with("model not found in any model repository");
  Status status(reason.code(),
                StrCat("failed to load '", name,
                       "', failed to poll from model repository: ", reason.message()));
  const uint64_t fingerprint = RecordFailure(name, status, /*affects_readiness=*/false);
  lifecycle_->failures().Write(
      name, fingerprint,
      StrCat(is_found ? "Poll failed for model directory '" : "failed to poll model '", name,
             "': ", reason.message()),
      is_poll);
  return status;
}

Status LoadPlanner::FailWithoutVersion(const std::string& name, const Status& reason,
                                       bool is_required, bool is_poll) const {
  const uint64_t fingerprint = RecordFailure(name, reason, is_required);
  lifecycle_->failures().Write(
      name, fingerprint, StrCat("Poll failed for model directory '", name, "': ", reason.message()),
      is_poll);
  if (fingerprint != 0) lifecycle_->PublishUnavailable(name);
  return reason;
}

uint64_t LoadPlanner::RecordFailure(const std::string& name, const Status& status,
                                    bool affects_readiness) const {
  // Nothing is recorded for a name without directory, which is no model, and for an ambiguous name,
  // which the index reports itself.
  const std::vector<ScannedModel> found = FindModel(repositories_->All(), name);
  if (found.size() != 1) return 0;
  Result<FolderScan> scan = ScanModelFolder(found.front().path, /*config_path=*/"");
  std::vector<int64_t> versions;
  if (scan.ok()) versions = std::move(scan->folders.versions);
  if (versions.empty()) versions = {1};
  for (const int64_t version : versions) {
    lifecycle_->RecordFailure(name, version, status.message(), affects_readiness);
  }
  return scan.ok() ? std::max<uint64_t>(scan->fingerprints.all, 1) : 1;
}

}  // namespace nereid::core
