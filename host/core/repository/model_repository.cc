#include "host/core/repository/model_repository.h"

#include <algorithm>
#include <set>
#include <utility>

#include "host/core/repository/model_name.h"

namespace nereid::core {
namespace {

// The name in the log of failures for what concerns whole repositories. No model has it.
constexpr char kNoModel[] = "";

Status AmbiguousError(const std::string& name, const std::set<std::string>& candidates) {
  std::string list;
  for (const std::string& key : candidates) list += StrCat(list.empty() ? "'" : ", '", key, "'");
  return InvalidArgError("failed to load '", name,
                         "' with parameters: the name is ambiguous: ", candidates.size(),
                         " models have it: ", list);
}

bool BlocksReadiness(const VersionStatus& status) {
  if (status.state == ModelState::kReady || status.state == ModelState::kUnloading) return false;
  return status.affects_readiness && !IsUnloaded(status);
}

// Adds the models in the repositories to `statuses`; returns the names that several directories
// share.
std::set<std::string> AddFolders(const RepositoryList& repositories, ModelStatuses* statuses) {
  std::set<std::string> ambiguous;
  const auto scanned = ScanRepositories(repositories.All());
  if (!scanned.ok()) return ambiguous;
  for (const auto& [name, folders] : *scanned) {
    (*statuses)[name];
    if (folders.size() > 1) ambiguous.insert(name);
  }
  return ambiguous;
}

// Lists the models in the repositories and those in `statuses`, ordered by name. With `ready_only`,
// only ready versions.
std::vector<IndexEntry> ListModels(const RepositoryList& repositories, ModelStatuses statuses,
                                   bool ready_only) {
  std::set<std::string> ambiguous;
  if (!ready_only) ambiguous = AddFolders(repositories, &statuses);
  const bool qualified = repositories.HasNamespaces();
  std::vector<IndexEntry> index;
  for (const auto& [kept, versions] : statuses) {
    const std::string name(qualified ? PlainName(kept) : std::string_view(kept));
    if (versions.empty()) {
      const bool is_ambiguous = ambiguous.count(kept) > 0;
      const char* reason = is_ambiguous ? "model appears in two or more repositories" : "";
      index.push_back({name, IndexEntry::kNoVersion, {ModelState::kUnavailable, reason}});
    }
    for (const auto& [version, status] : versions) {
      if (ready_only && status.state != ModelState::kReady) continue;
      index.push_back({name, version, status});
    }
  }
  std::stable_sort(index.begin(), index.end(), [](const IndexEntry& a, const IndexEntry& b) {
    return a.name < b.name;  // models of equal name in several repositories become adjacent
  });
  return index;
}

}  // namespace

ModelRepository::ModelRepository(std::vector<Repository> repositories, ConfigLookup rule,
                                 ModelLifecycle* lifecycle, std::vector<std::string> agent_dirs)
    : lifecycle_(lifecycle),
      repositories_(std::move(repositories)),
      agents_(std::move(agent_dirs)),
      load_planner_(std::move(rule), &repositories_, &agents_, lifecycle),
      unloader_(&loaded_, &requested_ensembles_, lifecycle),
      load_execution_(&repositories_, &load_planner_, &loaded_, &requested_ensembles_, &unloader_,
                      lifecycle) {}

std::set<std::string> ModelRepository::ResolveNames(const std::string& name) const {
  const std::vector<Repository> repositories = repositories_.All();
  if (IsQualified(name) || repositories.empty() || !repositories_.HasNamespaces()) return {name};
  std::set<std::string> names;
  for (const Repository& repository : repositories) {
    const std::string key = QualifiedName(repository.path, name);
    if (!FindModel({repository}, key).empty()) names.insert(key);
  }
  for (const auto& [key, versions] : lifecycle_->Statuses()) {
    if (PlainName(key) == name && lifecycle_->IsServing(key)) names.insert(key);
  }
  // A model whose files come with the load call gets the namespace of the first repository.
  if (names.empty()) names.insert(QualifiedName(repositories.front().path, name));
  return names;
}

Status ModelRepository::SummarizeFailures(const LoadExecution::Failures& failures) {
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
  std::set<std::string> key;
  for (const std::string& name : names) key.merge(ResolveNames(name));
  LoadList list = load_planner_.PlanAll({key.begin(), key.end()}, /*is_poll=*/false);
  load_execution_.Run(&list);
  return SummarizeFailures(list.failures);
}

bool ModelRepository::IsCurrent(const LoadPlan& plan) const {
  return !plan.overridden() && lifecycle_->IsServing(plan.load.name) && loaded_.IsUnchanged(plan);
}

Status ModelRepository::Load(const std::string& name,
                             const std::vector<const Parameter*>& parameters) {
  const std::set<std::string> names = ResolveNames(name);
  if (names.size() > 1 && !parameters.empty()) return AmbiguousError(name, names);
  Status first_error;
  for (const std::string& key : names) {
    Status status = LoadOne(key, parameters);
    if (!status.ok() && first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}

Status ModelRepository::LoadOne(const std::string& name,
                                const std::vector<const Parameter*>& parameters) {
  NEREID_ASSIGN_OR_RETURN(LoadPlan plan, load_planner_.Plan(name, parameters));
  const bool is_current = IsCurrent(plan);
  LoadList list;
  list.plans.emplace(name, std::move(plan));
  // If a step cannot be planned, the ensemble fails later with an error that names the step.
  load_planner_.AddSteps(name, &list);
  // The steps of a serving ensemble serve. Steps that do not serve belong to a configuration that a
  // load call replaced.
  std::erase_if(list.plans, [&](const auto& each) {
    return IsCurrent(each.second) || (is_current && !lifecycle_->IsServing(each.first));
  });
  LoadExecution::Failures callers = load_execution_.Run(&list);
  // If only a step is loaded, the ensemble is reloaded as a caller of the step.
  const auto caller = callers.find(name);
  if (caller != callers.end()) list.failures.insert(callers.extract(caller));
  const auto own = list.failures.find(name);
  if (own == list.failures.end()) return Status::Ok();
  Status status = own->second;
  for (const auto& [failed, reason] : list.failures) {
    if (failed != name) status = {status.code(), StrCat(status.message(), "; ", reason.message())};
  }
  return status;
}

Status ModelRepository::Unload(const std::string& name, bool dependents) {
  for (const std::string& key : ResolveNames(name)) {
    NEREID_RETURN_IF_ERROR(UnloadOne(key, dependents));
  }
  return Status::Ok();
}

Status ModelRepository::UnloadOne(const std::string& name, bool dependents) {
  const auto statuses = lifecycle_->Statuses();
  if (statuses.count(name) == 0 && FindModel(repositories_.All(), name).empty()) {
    return NotFoundError("failed to unload '", PlainName(name),
                         "': no model of this name is known");
  }
  requested_ensembles_.Erase(name);
  return unloader_.Unload(name, dependents)
      .WithContext(StrCat("failed to unload '", PlainName(name), "'"));
}

Status ModelRepository::Poll() {
  const auto scanned_or = ScanRepositories(repositories_.All());
  if (!scanned_or.ok()) {
    lifecycle_->failures().Write(kNoModel, 0, scanned_or.status().message(), /*is_poll=*/true);
    return scanned_or.status();
  }
  lifecycle_->failures().Forget(kNoModel);
  const auto& scanned = *scanned_or;
  std::vector<std::string> names;
  for (const auto& [name, folders] : scanned) names.push_back(name);
  LoadList list = load_planner_.PlanAll(names, /*is_poll=*/true);
  // A model that another call is loading is left to that call, which may take long. So is an
  // ensemble that calls it.
  const auto is_loading = [&](const std::string& name) { return lifecycle_->IsLoading(name); };
  std::erase_if(list.plans, [&](const auto& each) {
    const auto& [name, plan] = each;
    return IsCurrent(plan) || is_loading(name) ||
           std::any_of(plan.steps.begin(), plan.steps.end(), is_loading);
  });
  list.failures.merge(load_execution_.Run(&list));
  for (const std::string& name : loaded_.Names()) {
    // With a second directory of the same name, the model is ambiguous.
    const auto folders = scanned.find(name);
    const bool is_gone = folders == scanned.end() || folders->second.size() > 1;
    if (!is_gone) continue;
    const Status unloaded = UnloadOne(name, false);
    if (unloaded.ok()) continue;
    lifecycle_->failures().Write(name, 0, unloaded.message(), /*is_poll=*/true);
    return unloaded;
  }
  return SummarizeFailures(list.failures);
}

std::vector<IndexEntry> ModelRepository::Index(bool ready_only) const {
  return ListModels(repositories_, lifecycle_->Statuses(), ready_only);
}

bool ModelRepository::AllServing() const {
  for (const auto& [name, versions] : lifecycle_->Statuses()) {
    for (const auto& [version, status] : versions) {
      if (BlocksReadiness(status)) return false;
    }
  }
  return true;
}

}  // namespace nereid::core
