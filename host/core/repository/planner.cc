#include "repository/planner.h"

#include <utility>

#include "observe/log.h"

namespace nereid {

LoadList Planner::PlanAll(const std::vector<std::string>& names) const {
  const std::vector<Repository> repositories = repositories_->All();
  std::vector<Result<ModelPlan>> made = PlanModels(repositories, names, rule_);
  LoadList list;
  for (size_t i = 0; i < names.size(); ++i) {
    Add(names[i], std::move(made[i]), /*by_request=*/false, &list);
  }
  for (const std::string& name : names) {
    AddStepsFrom(repositories, name, /*by_request=*/false, &list);
  }
  return list;
}

Result<ModelPlan> Planner::Plan(const std::string& name,
                                const std::vector<const Parameter*>& parameters) const {
  return Checked(name, PlanModel(repositories_->All(), name, rule_, parameters),
                 /*by_request=*/true);
}

void Planner::AddSteps(const std::string& name, bool by_request, LoadList* list) const {
  AddStepsFrom(repositories_->All(), name, by_request, list);
}

void Planner::AddStepsFrom(const std::vector<Repository>& repositories, const std::string& name,
                           bool by_request, LoadList* list) const {
  const auto it = list->plans.find(name);
  if (it == list->plans.end()) return;
  for (const std::string& step : it->second.steps) {
    const bool is_listed = list->plans.count(step) > 0 || list->failures.count(step) > 0;
    if (is_listed || lifecycle_->IsServing(step)) continue;
    Add(step, PlanModel(repositories, step, rule_), by_request, list);
    AddStepsFrom(repositories, step, by_request, list);
  }
}

void Planner::Add(const std::string& name, Result<ModelPlan> plan, bool by_request,
                  LoadList* list) const {
  Result<ModelPlan> checked = Checked(name, std::move(plan), by_request);
  if (checked.ok()) {
    list->plans.emplace(name, std::move(checked).value());
  } else {
    list->failures.insert_or_assign(name, std::move(checked).status());
  }
}

void Planner::ApplyAgents(bool by_request, LoadList* list) const {
  for (auto it = list->plans.begin(); it != list->plans.end();) {
    const std::string& name = it->first;
    ModelPlan& plan = it->second;
    Status status = nereid::ApplyAgents(agents_, repositories_->All(), rule_, &plan);
    if (status.ok() && plan.no_version.ok()) {
      ++it;
      continue;
    }
    status = status.ok() ? FailWithoutVersion(name, plan.no_version, by_request)
                         : FailUnread(name, status);
    list->failures.insert_or_assign(name, std::move(status));
    it = list->plans.erase(it);
  }
}

Result<ModelPlan> Planner::Checked(const std::string& name, Result<ModelPlan> plan,
                                   bool by_request) const {
  if (!plan.ok()) return FailUnread(name, plan.status());
  if (!plan->no_version.ok()) return FailWithoutVersion(name, plan->no_version, by_request);
  return plan;
}

Status Planner::FailUnread(const std::string& name, const Status& reason) const {
  const bool is_found = !reason.message().starts_with("model not found in any model repository");
  NEREID_LOG_ERROR(is_found ? "Poll failed for model directory '" : "failed to poll model '", name,
                   "': ", reason.message());
  Status status(reason.code(),
                StrCat("failed to load '", name,
                       "', failed to poll from model repository: ", reason.message()));
  // As in Triton, a server is ready without the models whose configuration it could not take.
  RecordFailure(name, status, /*is_missed=*/false);
  return status;
}

Status Planner::FailWithoutVersion(const std::string& name, const Status& reason,
                                   bool by_request) const {
  NEREID_LOG_ERROR("Poll failed for model directory '", name, "': ", reason.message());
  if (RecordFailure(name, reason, !by_request)) lifecycle_->MakeKnown(name);
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
