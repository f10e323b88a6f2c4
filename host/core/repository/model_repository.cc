#include "host/core/repository/model_repository.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/bounded_queue.h"
#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

// The name in the log of failures for what concerns whole repositories. No model has it.
constexpr char kNoModel[] = "";

constexpr std::chrono::seconds kMaxChainWait{1};

Status AmbiguousError(const std::string& name, const std::set<std::string>& candidates) {
  std::string list;
  for (const std::string& key : candidates) list += StrCat(list.empty() ? "'" : ", '", key, "'");
  return InvalidArgError("failed to load '", name,
                         "' with parameters: the name is ambiguous: ", candidates.size(),
                         " models have it: ", list);
}

std::vector<std::string> NamesOf(const ScannedModels& scanned) {
  std::vector<std::string> names;
  for (const auto& [name, folders] : scanned) names.push_back(name);
  return names;
}

}  // namespace

ModelRepository::ModelRepository(std::vector<Repository> repositories, ConfigLookup rule,
                                 ModelLifecycle* lifecycle, std::vector<std::string> agent_dirs)
    : lifecycle_(lifecycle),
      rule_(std::move(rule)),
      repositories_(std::move(repositories)),
      agents_(std::move(agent_dirs)) {}

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

Status ModelRepository::LoadAll() {
  NEREID_ASSIGN_OR_RETURN(const ScannedModels scanned, ScanRepositories(repositories_.All()));
  return LoadNamed(NamesOf(scanned));
}

Status ModelRepository::LoadNamed(const std::vector<std::string>& names) {
  std::set<std::string> keys;
  for (const std::string& name : names) keys.merge(ResolveNames(name));
  LoadList list = PlanAll({keys.begin(), keys.end()}, /*is_poll=*/false);
  Reconcile(&list);
  return SummarizeFailures(list.failures);
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
  const std::vector<Repository> repositories = repositories_.All();
  LoadList list{.is_required = false};
  Add(name, ReadModel(repositories, name, rule_, parameters), /*is_requested=*/true, &list);
  if (!list.failures.empty()) return list.failures.at(name);
  const bool is_current = lifecycle_->IsCurrent(list.plans.at(name));
  // If a step cannot be planned, the ensemble fails later with an error that names the step.
  AddSteps(repositories, name, &list);
  // The steps of a serving ensemble serve. Steps that do not serve belong to a configuration that a
  // load call replaced.
  std::erase_if(list.plans, [&](const auto& each) {
    return lifecycle_->IsCurrent(each.second) || (is_current && !lifecycle_->IsServing(each.first));
  });
  Failures callers = Reconcile(&list);
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
  requested_.Erase(name);
  return UnloadWithCallers(name, dependents)
      .WithContext(StrCat("failed to unload '", PlainName(name), "'"));
}

void ModelRepository::UnloadAll() {
  requested_.Clear();
  // Ensembles come first, because they have requests in flight to their steps.
  for (const auto& [name, model] : lifecycle_->Loaded()) {
    if (!model.steps.empty()) lifecycle_->UnloadIfIdle(name);
  }
  for (const auto& [name, versions] : lifecycle_->Statuses()) lifecycle_->UnloadIfIdle(name);
}

Status ModelRepository::Poll() {
  const auto scanned = ScanRepositories(repositories_.All());
  if (!scanned.ok()) {
    lifecycle_->failures().Write(kNoModel, 0, scanned.status().message(), /*is_poll=*/true);
    return scanned.status();
  }
  lifecycle_->failures().Forget(kNoModel);
  LoadList list = PlanAll(NamesOf(*scanned), /*is_poll=*/true);
  // A model that another call is loading is left to that call, which may take long. So is an
  // ensemble that calls it.
  const auto is_loading = [&](const std::string& name) { return lifecycle_->IsLoading(name); };
  std::erase_if(list.plans, [&](const auto& each) {
    const auto& [name, plan] = each;
    return lifecycle_->IsCurrent(plan) || is_loading(name) ||
           std::any_of(plan.steps.begin(), plan.steps.end(), is_loading);
  });
  list.failures.merge(Reconcile(&list));
  for (const std::string& name : FindRemoved(*scanned, lifecycle_->Loaded())) {
    const Status unloaded = UnloadOne(name, false);
    if (unloaded.ok()) continue;
    lifecycle_->failures().Write(name, 0, unloaded.message(), /*is_poll=*/true);
    return unloaded;
  }
  return SummarizeFailures(list.failures);
}

std::vector<IndexEntry> ModelRepository::Index(bool ready_only) const {
  ModelStatuses statuses = lifecycle_->Statuses();
  ScannedModels scanned;
  if (!ready_only) {
    Result<ScannedModels> listed = ScanRepositories(repositories_.All());
    if (listed.ok()) scanned = *std::move(listed);
  }
  return ListModels(std::move(statuses), scanned, repositories_.HasNamespaces(), ready_only);
}

LoadList ModelRepository::PlanAll(const std::vector<std::string>& names, bool is_poll) const {
  const std::vector<Repository> repositories = repositories_.All();
  std::vector<Result<LoadPlan>> plans = ReadModels(repositories, names, rule_);
  LoadList list{.is_required = true, .is_poll = is_poll};
  for (size_t i = 0; i < names.size(); ++i) {
    Add(names[i], std::move(plans[i]), /*is_requested=*/true, &list);
  }
  for (const std::string& name : names) AddSteps(repositories, name, &list);
  return list;
}

void ModelRepository::Add(const std::string& name, Result<LoadPlan> plan, bool is_requested,
                          LoadList* list) const {
  const bool has_config = plan.ok();
  const Status& error = has_config ? plan->version_error : plan.status();
  if (error.ok()) {
    plan->is_required = list->is_required;
    plan->is_poll = list->is_poll;
    plan->is_requested = is_requested;
    list->plans.emplace(name, *std::move(plan));
    return;
  }
  list->failures.insert_or_assign(
      name, RecordUnloadable(name, error, has_config, list->is_required, list->is_poll));
}

void ModelRepository::AddSteps(const std::vector<Repository>& repositories, const std::string& name,
                               LoadList* list) const {
  // Not recursive, because ensembles may be nested to any depth before that is checked.
  std::vector<std::string> pending = {name};
  while (!pending.empty()) {
    const auto it = list->plans.find(pending.back());
    pending.pop_back();
    if (it == list->plans.end()) continue;
    for (const std::string& step : it->second.steps) {
      if (list->plans.count(step) > 0 || list->failures.count(step) > 0) continue;
      Result<LoadPlan> plan = ReadModel(repositories, step, rule_);
      // A serving step keeps serving if its directory is no longer readable.
      if (!plan.ok() && lifecycle_->IsServing(step)) continue;
      Add(step, std::move(plan), /*is_requested=*/false, list);
      pending.push_back(step);
    }
  }
}

Status ModelRepository::RecordUnloadable(const std::string& name, const Status& reason,
                                         bool has_config, bool is_required, bool is_poll) const {
  const bool is_found =
      has_config || !reason.message().starts_with("model not found in any model repository");
  Status status = reason;
  if (!has_config) {
    status = {reason.code(), StrCat("failed to load '", name,
                                    "', failed to poll from model repository: ", reason.message())};
  }
  uint64_t fingerprint = 0;
  // Nothing is recorded for a name without directory, which is no model, and for an ambiguous name,
  // which the index reports itself.
  const std::vector<ScannedModel> found = FindModel(repositories_.All(), name);
  if (found.size() == 1) {
    Result<FolderScan> scan = ScanModelFolder(found.front().path, /*config_path=*/"");
    std::vector<int64_t> versions;
    if (scan.ok()) versions = std::move(scan->folders.versions);
    if (versions.empty()) versions = {1};
    for (const int64_t version : versions) {
      lifecycle_->RecordFailure(name, version, status.message(), has_config && is_required);
    }
    if (has_config) lifecycle_->PublishUnavailable(name);
    fingerprint = scan.ok() ? std::max<uint64_t>(scan->fingerprints.all, 1) : 1;
  }
  lifecycle_->failures().Write(
      name, fingerprint,
      StrCat(is_found ? "Poll failed for model directory '" : "failed to poll model '", name,
             "': ", reason.message()),
      is_poll);
  return status;
}

ModelRepository::Failures ModelRepository::Reconcile(LoadList* list) {
  const EnsemblePlans attempted = requested_.MarkRequested(list->plans);
  const auto settle = [&](const std::string& name) {
    requested_.Settle(name, attempted.at(name), list->failures.count(name) == 0,
                      lifecycle_->IsServing(name));
  };
  // Repeated, because the previous plan of a refused ensemble may close another cycle.
  while (true) {
    const Failures refused = FindRefused(list->plans, requested_.All());
    if (refused.empty()) break;
    for (const auto& [name, status] : refused) {
      Reject(name, status, list);
      settle(name);
    }
  }
  const std::set<std::string> loaded = Execute(list, nullptr);
  for (const auto& [name, plan] : attempted) settle(name);
  return ReloadCallers(attempted, loaded);
}

std::set<std::string> ModelRepository::Execute(LoadList* list, const MayStart& may_start) {
  for (const auto& [name, status] : FindRefused(list->plans, requested_.All())) {
    Reject(name, status, list);
  }
  RunAgents(list);
  for (const auto& [name, plan] : list->plans) {
    for (const std::string& note : plan.notes) NEREID_LOG_WARN("model '", name, "': ", note);
  }
  LoadList interrupted;
  std::set<std::string> loaded = RunLoads(list, may_start, &interrupted);
  // If a step serves again by now, its load could not find the ensemble as a caller: load the
  // ensemble again.
  std::erase_if(interrupted.plans, [&](const auto& each) {
    const auto& [name, plan] = each;
    const std::set<std::string> steps(plan.steps.begin(), plan.steps.end());
    return !AllStepsServe(plan, serves_) || CallersOf(steps, requested_.All()).count(name) == 0;
  });
  if (!interrupted.plans.empty()) {
    loaded.merge(Execute(&interrupted, may_start));
    list->failures.merge(interrupted.failures);
  }
  return loaded;
}

std::set<std::string> ModelRepository::RunLoads(LoadList* list, const MayStart& may_start,
                                                LoadList* interrupted) {
  // Shared with the load threads, which may still be inside TryPush when the last result is popped.
  using Completions = BoundedQueue<std::pair<std::string, ModelLifecycle::Outcome>>;
  const auto completions = std::make_shared<Completions>(list->plans.size() + 1);
  std::map<std::string, LoadPlan> running;
  Failures failed;
  std::set<std::string> loaded;
  while (true) {
    const NextLoads next = FindNextLoads(list->plans, running, failed, serves_);
    for (const auto& [name, status] : next.failures) {
      Reject(name, status, list);
      failed.emplace(name, status);
    }
    for (const std::string& name : next.start) {
      auto node = list->plans.extract(name);
      if (may_start != nullptr && !may_start(node.mapped())) continue;
      const LoadPlan& plan = running.insert(std::move(node)).position->second;
      lifecycle_->Load(plan, [completions, name](ModelLifecycle::Outcome outcome) {
        completions->TryPush({name, std::move(outcome)});
      });
    }
    if (!next.start.empty() || !next.failures.empty()) continue;
    if (running.empty()) return loaded;
    const auto [name, outcome] = std::move(completions->Pop()).value();
    const LoadPlan plan = std::move(running.extract(name).mapped());
    if (outcome.is_new) loaded.insert(name);
    if (!outcome.status.ok()) {
      if (plan.agents != nullptr) plan.agents->FinishLoad(false);
      failed.emplace(name, outcome.status);
      list->failures.insert_or_assign(name, outcome.status);
    } else if (!AllStepsServe(plan, serves_)) {
      // An unload of a model looks for its callers afterwards. So either the unload or this check
      // sees the conflict.
      interrupted->plans.emplace(name, plan);
      (void)UnloadWithCallers(name, false);
    }
  }
}

void ModelRepository::RunAgents(LoadList* list) {
  for (auto it = list->plans.begin(); it != list->plans.end();) {
    auto& [name, plan] = *it;
    const Status status = ApplyAgents(&agents_, repositories_.All(), rule_, &plan);
    const bool has_config = status.ok();
    const Status& error = has_config ? plan.version_error : status;
    if (error.ok()) {
      ++it;
      continue;
    }
    list->failures.insert_or_assign(
        name, RecordUnloadable(name, error, has_config, plan.is_required, plan.is_poll));
    it = list->plans.erase(it);
  }
}

void ModelRepository::Reject(const std::string& name, const Status& status, LoadList* list) {
  const auto node = list->plans.extract(name);
  const LoadPlan& plan = node.mapped();
  for (const int64_t version : plan.versions) {
    lifecycle_->RecordFailure(name, version, status.message(), /*affects_readiness=*/false);
  }
  lifecycle_->failures().Write(name, plan.fingerprint, status.message(), plan.is_poll);
  if (plan.agents != nullptr) plan.agents->FinishLoad(false);
  list->failures.insert_or_assign(name, status);
}

ModelRepository::Failures ModelRepository::ReloadCallers(const EnsemblePlans& attempted,
                                                         const std::set<std::string>& loaded) {
  if (loaded.empty()) return {};
  const EnsemblePlans callers = CallersToReload(attempted, loaded);
  LoadList list;
  for (const auto& [name, plan] : callers) list.plans.emplace(name, *plan);
  // An ensemble that is unloaded by name meanwhile stays unloaded.
  const auto is_requested = [&](const std::string& name) {
    return requested_.IsRequested(name, callers.at(name));
  };
  const std::set<std::string> reloaded =
      Execute(&list, [&](const LoadPlan& plan) { return is_requested(plan.name); });
  for (const std::string& name : reloaded) {
    requested_.Settle(name, callers.at(name), /*is_loaded=*/true, /*serves=*/true);
  }
  for (const auto& [name, status] : list.failures) {
    // Other loads may have taken long: meanwhile a client may have loaded or unloaded this name.
    if (!is_requested(name)) continue;
    (void)UnloadWithCallers(name, false);
    for (const int64_t version : callers.at(name)->versions) {
      lifecycle_->RecordFailure(name, version, status.message(), /*affects_readiness=*/false);
    }
  }
  list.failures.merge(ReloadCallers(callers, reloaded));
  return std::move(list.failures);
}

EnsemblePlans ModelRepository::CallersToReload(const EnsemblePlans& attempted,
                                               const std::set<std::string>& loaded) {
  EnsemblePlans callers;
  for (const auto& [name, plan] : CallersOf(loaded, requested_.All())) {
    if (attempted.count(name) > 0) continue;
    const bool is_removed = plan->files == nullptr && !lifecycle_->IsServing(name) &&
                            FindModel(repositories_.All(), name).empty();
    if (is_removed) {
      requested_.Erase(name, plan);
    } else if (AllStepsServe(*plan, serves_)) {
      callers.emplace(name, plan);
    }  // otherwise the ensemble keeps waiting for its other steps
  }
  return callers;
}

Status ModelRepository::UnloadWithCallers(const std::string& name, bool dependents) {
  NEREID_RETURN_IF_ERROR(lifecycle_->WaitUntilIdle(name));
  std::vector<std::string> unused;
  if (dependents) {
    for (const auto& [ensemble, steps] : FindUnusedSteps(name, lifecycle_->Loaded())) {
      lifecycle_->UnloadAfter(ensemble, steps);
      for (const std::string& step : steps) requested_.Erase(step);
      unused.insert(unused.end(), steps.begin(), steps.end());
    }
  }
  const auto unload_callers = [&] {
    for (const std::string& ensemble : EnsemblesCalling(name, lifecycle_->Loaded())) {
      NEREID_LOG_INFO("unloading: ensemble '", ensemble, "' with its step '", name, "'");
      const Status status = UnloadWithCallers(ensemble, false);
      if (!status.ok()) NEREID_LOG_ERROR("failed to unload '", ensemble, "': ", status.message());
    }
  };
  unload_callers();
  NEREID_LOG_INFO("unloading: ", name);
  NEREID_RETURN_IF_ERROR(lifecycle_->Unload(name));
  // A load that ended meanwhile may have loaded a caller again.
  if (!lifecycle_->IsServing(name)) unload_callers();
  // Usually no requests are in flight and the steps follow at once. Long requests are not waited
  // for.
  lifecycle_->WaitUntilUnloading(unused, std::chrono::steady_clock::now() + kMaxChainWait);
  return Status::Ok();
}

}  // namespace nereid::core
