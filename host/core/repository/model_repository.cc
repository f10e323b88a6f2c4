#include "host/core/repository/model_repository.h"

#include <algorithm>
#include <utility>

#include "host/core/observe/log.h"
#include "host/core/repository/model_name.h"

namespace nereid {
namespace {

Status AmbiguousError(const std::string& name, const std::set<std::string>& candidates) {
  std::string list;
  for (const std::string& kept : candidates) list += StrCat(list.empty() ? "'" : ", '", kept, "'");
  return InvalidArgError("failed to load '", name,
                         "' with parameters: the name is ambiguous: ", candidates.size(),
                         " models have it: ", list);
}

bool IsMissed(const VersionStatus& status) {
  if (status.state == ModelState::kReady || status.state == ModelState::kUnloading) return false;
  return status.state == ModelState::kLoading || (status.is_missed && !IsUnloaded(status));
}

}  // namespace

ModelRepository::ModelRepository(std::vector<Repository> repositories, ConfigRule rule,
                                 ModelLifecycle* lifecycle, std::vector<std::string> agent_dirs)
    : lifecycle_(lifecycle),
      repositories_(std::move(repositories)),
      agents_(std::move(agent_dirs)),
      planner_(std::move(rule), &repositories_, &agents_, lifecycle),
      unloader_(&loaded_, &wanted_, lifecycle),
      carrier_(&repositories_, &planner_, &loaded_, &wanted_, &unloader_, lifecycle) {}

std::set<std::string> ModelRepository::KeptNames(const std::string& name) const {
  const std::vector<Repository> repositories = repositories_.All();
  if (IsQualified(name) || repositories.empty() || !repositories_.HasNamespaces()) return {name};
  std::set<std::string> names;
  for (const Repository& repository : repositories) {
    const std::string kept = QualifiedName(repository.path, name);
    if (!FindModel({repository}, kept).empty()) names.insert(kept);
  }
  for (const auto& [kept, versions] : lifecycle_->Statuses()) {
    if (PlainName(kept) == name && lifecycle_->IsServing(kept)) names.insert(kept);
  }
  // A model that comes with the call stands where the first repository would have it.
  if (names.empty()) names.insert(QualifiedName(repositories.front().path, name));
  return names;
}

Status ModelRepository::Summarise(const LoadCarrier::Failures& failures) {
  if (failures.empty()) return Status::Ok();
  std::string text = "failed to load all models";
  for (const auto& [name, status] : failures) text += StrCat("; ", status.message());
  return {StatusCode::kInternal, std::move(text)};
}

Status ModelRepository::LoadAll() {
  NEREID_ASSIGN_OR_RETURN(const auto scanned, ScanRepositories(repositories_.All()));
  std::vector<std::string> names;
  for (const auto& [name, folders] : scanned) names.push_back(name);
  return LoadNamed(names);
}

Status ModelRepository::LoadNamed(const std::vector<std::string>& names) {
  std::set<std::string> kept;
  for (const std::string& name : names) kept.merge(KeptNames(name));
  LoadList list = planner_.PlanAll({kept.begin(), kept.end()});
  carrier_.Carry(&list);
  for (const auto& [name, status] : list.failures) NEREID_LOG_ERROR(status.message());
  return Summarise(list.failures);
}

bool ModelRepository::IsCurrent(const ModelPlan& plan) const {
  return !plan.overridden() && lifecycle_->IsServing(plan.load.name) && loaded_.IsUnchanged(plan);
}

Status ModelRepository::Load(const std::string& name,
                             const std::vector<const Parameter*>& parameters) {
  const std::set<std::string> names = KeptNames(name);
  if (names.size() > 1 && !parameters.empty()) return AmbiguousError(name, names);
  Status first_error;
  for (const std::string& kept : names) {
    Status status = LoadOne(kept, parameters);
    if (!status.ok() && first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}

Status ModelRepository::LoadOne(const std::string& name,
                                const std::vector<const Parameter*>& parameters) {
  NEREID_ASSIGN_OR_RETURN(ModelPlan plan, planner_.Plan(name, parameters));
  const bool is_current = IsCurrent(plan);
  LoadList list;
  list.plans.emplace(name, std::move(plan));
  // A step that cannot be planned fails the ensemble below, by name.
  planner_.AddSteps(name, &list);
  // All steps of what serves do: others are of a configuration that a load call replaced.
  std::erase_if(list.plans, [&](const auto& each) {
    return IsCurrent(each.second) || (is_current && !lifecycle_->IsServing(each.first));
  });
  LoadCarrier::Failures followers = carrier_.Carry(&list);
  for (const auto& [failed, status] : list.failures) NEREID_LOG_ERROR(status.message());
  // Where a step alone is loaded the ensemble is among those that follow it.
  const auto follower = followers.find(name);
  if (follower != followers.end()) list.failures.insert(followers.extract(follower));
  const auto own = list.failures.find(name);
  if (own == list.failures.end()) return Status::Ok();
  Status status = own->second;
  for (const auto& [failed, reason] : list.failures) {
    if (failed != name) status = {status.code(), StrCat(status.message(), "; ", reason.message())};
  }
  return status;
}

Status ModelRepository::Unload(const std::string& name, bool dependents) {
  for (const std::string& kept : KeptNames(name)) {
    NEREID_RETURN_IF_ERROR(UnloadOne(kept, dependents));
  }
  return Status::Ok();
}

Status ModelRepository::UnloadOne(const std::string& name, bool dependents) {
  const auto statuses = lifecycle_->Statuses();
  if (statuses.count(name) == 0 && FindModel(repositories_.All(), name).empty()) {
    NEREID_LOG_WARN("nothing to unload: no model '", name, "' is known");
    return Status::Ok();
  }
  wanted_.Forget(name);
  unloader_.TakeDown(name, dependents);
  return Status::Ok();
}

Status ModelRepository::Poll() {
  NEREID_ASSIGN_OR_RETURN(const auto scanned, ScanRepositories(repositories_.All()));
  std::vector<std::string> names;
  for (const auto& [name, folders] : scanned) names.push_back(name);
  LoadList list = planner_.PlanAll(names);
  std::erase_if(list.plans, [&](const auto& plan) { return IsCurrent(plan.second); });
  list.failures.merge(carrier_.Carry(&list));
  for (const std::string& name : loaded_.Names()) {
    // With a second folder of its name nobody can say which one is meant.
    const auto folders = scanned.find(name);
    const bool is_gone = folders == scanned.end() || folders->second.size() > 1;
    if (is_gone) NEREID_RETURN_IF_ERROR(UnloadOne(name, false));
  }
  return Summarise(list.failures);
}

std::vector<IndexEntry> ModelRepository::Index(bool ready_only) const {
  return ListModels(repositories_, lifecycle_->Statuses(), ready_only);
}

bool ModelRepository::AllServing() const {
  for (const auto& [name, versions] : lifecycle_->Statuses()) {
    for (const auto& [version, status] : versions) {
      if (IsMissed(status)) return false;
    }
  }
  return true;
}

}  // namespace nereid
