#include "host/core/repository/planner.h"

#include <utility>

#include "host/core/observe/log.h"

namespace nereid {

LoadList Planner::PlanAll(const std::vector<std::string>& names) const {
  const std::vector<Repository> repositories = repositories_->All();
  std::vector<Result<ModelPlan>> made = PlanModels(repositories, names, rule_);
  LoadList list;
  for (size_t i = 0; i < names.size(); ++i) {
    if (made[i].ok()) made[i]->is_asked_for = true;
    Add(names[i], std::move(made[i]), &list);
  }
  for (const std::string& name : names) {
    AddStepsFrom(repositories, name, &list);
  }
  return list;
}

Result<ModelPlan> Planner::Plan(const std::string& name,
                                const std::vector<const Parameter*>& parameters) const {
  Result<ModelPlan> plan = PlanModel(repositories_->All(), name, rule_, parameters);
  if (plan.ok()) plan->is_asked_for = true;
  return Checked(name, std::move(plan));
}

void Planner::AddSteps(const std::string& name, LoadList* list) const {
  AddStepsFrom(repositories_->All(), name, list);
}

void Planner::AddStepsFrom(const std::vector<Repository>& repositories, const std::string& name,
                           LoadList* list) const {
  const auto it = list->plans.find(name);
  if (it == list->plans.end()) return;
  for (const std::string& step : it->second.steps) {
    if (list->plans.count(step) > 0 || list->failures.count(step) > 0) continue;
    Result<ModelPlan> plan = PlanModel(repositories, step, rule_);
    // What serves goes on where its folder cannot be read any more.
    if (!plan.ok() && lifecycle_->IsServing(step)) continue;
    Add(step, std::move(plan), list);
    AddStepsFrom(repositories, step, list);
  }
}

void Planner::Add(const std::string& name, Result<ModelPlan> plan, LoadList* list) const {
  Result<ModelPlan> checked = Checked(name, std::move(plan));
  if (checked.ok()) {
    list->plans.emplace(name, std::move(checked).value());
  } else {
    list->failures.insert_or_assign(name, std::move(checked).status());
  }
}

void Planner::ApplyAgents(LoadList* list) const {
  for (auto it = list->plans.begin(); it != list->plans.end();) {
    const std::string& name = it->first;
    ModelPlan& plan = it->second;
    Status status = nereid::ApplyAgents(agents_, repositories_->All(), rule_, &plan);
    if (status.ok() && plan.no_version.ok()) {
      ++it;
      continue;
    }
    status = status.ok() ? FailWithoutVersion(name, plan.no_version) : FailUnread(name, status);
    list->failures.insert_or_assign(name, std::move(status));
    it = list->plans.erase(it);
  }
}

Result<ModelPlan> Planner::Checked(const std::string& name, Result<ModelPlan> plan) const {
  if (!plan.ok()) return FailUnread(name, plan.status());
  if (!plan->no_version.ok()) return FailWithoutVersion(name, plan->no_version);
  return plan;
}

Status Planner::FailUnread(const std::string& name, const Status& reason) const {
  const bool is_found = !reason.message().starts_with("model not found in any model repository");
  NEREID_LOG_ERROR(is_found ? "Poll failed for model directory '" : "failed to poll model '", name,
                   "': ", reason.message());
  Status status(reason.code(),
                StrCat("failed to load '", name,
                       "', failed to poll from model repository: ", reason.message()));
  RecordFailure(name, status, /*is_missed=*/false);
  return status;
}

Status Planner::FailWithoutVersion(const std::string& name, const Status& reason) const {
  NEREID_LOG_ERROR("Poll failed for model directory '", name, "': ", reason.message());
  if (RecordFailure(name, reason, /*is_missed=*/true)) lifecycle_->MakeKnown(name);
  return reason;
}

bool Planner::RecordFailure(const std::string& name, const Status& status, bool is_missed) const {
  // A name that no repository holds is no model with a failure; of one that several hold the index
  // says so by itself.
  const std::vector<ScannedModel> found = FindModel(repositories_->All(), name);
  if (found.size() != 1) return false;
  Result<VersionFolders> folders = ScanVersions(found.front().path);
  std::vector<int64_t> versions;
  if (folders.ok()) versions = std::move(folders->versions);
  if (versions.empty()) versions = {1};
  for (const int64_t version : versions) {
    lifecycle_->RecordFailure(name, version, status.message(), is_missed);
  }
  return true;
}

}  // namespace nereid
