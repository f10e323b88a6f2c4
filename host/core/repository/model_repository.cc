#include "repository/model_repository.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "config/config_loader.h"
#include "observe/log.h"
#include "repository/load_waves.h"
#include "repository/model_name.h"

namespace nereid {
namespace {

constexpr std::chrono::seconds kMaxChainWait{1};

// The configuration was read, and leaves no version to load.
bool IsWhole(const Status& status) {
  return status.message().starts_with("load failed for model '");
}

std::string LoadFailure(const std::string& name, const Status& status) {
  if (IsWhole(status)) return status.message();
  return StrCat("failed to load '", name,
                "', failed to poll from model repository: ", status.message());
}

}  // namespace

ModelRepository::ModelRepository(std::vector<Repository> repositories, ConfigRule rule,
                                 ModelLifecycle* lifecycle, std::vector<std::string> agent_dirs)
    : config_rule_(std::move(rule)),
      agents_(std::move(agent_dirs)),
      lifecycle_(lifecycle),
      repositories_(std::move(repositories)) {}

std::vector<Repository> ModelRepository::Repositories() const {
  std::lock_guard lock(mutex_);
  return repositories_;
}

bool ModelRepository::HasNamespaces() const {
  std::lock_guard lock(mutex_);
  return std::any_of(repositories_.begin(), repositories_.end(),
                     [](const Repository& repository) { return repository.own_namespace; });
}

ModelRepository::Names ModelRepository::KeptNames(const std::string& name) const {
  if (IsQualified(name) || !HasNamespaces()) return {name};
  std::set<std::string> names;
  const std::vector<Repository> repositories = Repositories();
  for (const Repository& repository : repositories) {
    const std::string kept = QualifiedName(repository.path, name);
    if (!FindModel({repository}, kept).empty()) names.insert(kept);
  }
  for (const auto& [kept, versions] : lifecycle_->Statuses()) {
    if (PlainName(kept) == name && lifecycle_->IsServing(kept)) names.insert(kept);
  }
  // A model that comes with the call stands where the first repository would have it.
  if (names.empty()) return {QualifiedName(repositories.front().path, name)};
  return {names.begin(), names.end()};
}

void ModelRepository::AddPlan(const std::string& name, Result<ModelPlan> plan, bool by_request,
                              Plans* plans, Failures* failures) const {
  if (plan.ok()) {
    plans->emplace(name, std::move(plan).value());
    return;
  }
  (*failures)[name] = FailedPlan(name, plan.status(), by_request);
}

// Why there is no plan, for whoever asked for the load; the log and the index have it too.
Status ModelRepository::FailedPlan(const std::string& name, const Status& reason,
                                   bool by_request) const {
  NEREID_LOG_ERROR("Poll failed for model directory '", name, "': ", reason.message());
  Status status(reason.code(), LoadFailure(name, reason));
  // As in Triton, a server is ready without the models whose configuration it could not take.
  RecordFailure(name, status, by_request || !IsWhole(status));
  return status;
}

void ModelRepository::AddSteps(const std::string& name, const std::vector<Repository>& repositories,
                               bool by_request, Plans* plans, Failures* failures) const {
  const auto it = plans->find(name);
  if (it == plans->end()) return;
  for (const std::string& step : it->second.steps) {
    if (lifecycle_->IsServing(step) || plans->count(step) > 0 || failures->count(step) > 0) {
      continue;
    }
    AddPlan(step, PlanModel(repositories, step, config_rule_), by_request, plans, failures);
    AddSteps(step, repositories, by_request, plans, failures);
  }
}

void ModelRepository::AddPlans(const std::vector<std::string>& names,
                               const std::vector<Repository>& repositories, Plans* plans,
                               Failures* failures) const {
  std::vector<Result<ModelPlan>> made = PlanModels(repositories, names, config_rule_);
  for (size_t i = 0; i < names.size(); ++i) {
    AddPlan(names[i], std::move(made[i]), /*by_request=*/false, plans, failures);
  }
  for (const std::string& name : names) {
    AddSteps(name, repositories, /*by_request=*/false, plans, failures);
  }
}

void ModelRepository::RecordFailure(const std::string& name, const Status& status,
                                    bool by_request) const {
  // A name that no repository holds is no model with a failure; of one that several hold the index
  // says so by itself.
  const std::vector<ScannedModel> found = FindModel(Repositories(), name);
  if (found.size() != 1) return;
  Result<VersionFolders> folders = ScanVersions(found.front().path);
  std::vector<int64_t> versions;
  if (folders.ok()) versions = std::move(folders->versions);
  if (versions.empty()) versions = {1};
  for (const int64_t version : versions) {
    lifecycle_->RecordFailure(name, version, status.message(), by_request);
  }
  if (IsWhole(status)) lifecycle_->MakeKnown(name);
}

void ModelRepository::ApplyAgentsTo(bool by_request, Plans* plans, Failures* failures) {
  for (auto it = plans->begin(); it != plans->end();) {
    const Status status = ApplyAgents(&agents_, Repositories(), config_rule_, &it->second);
    if (status.ok()) {
      ++it;
      continue;
    }
    const std::string& name = it->first;
    (*failures)[name] = FailedPlan(name, status, by_request);
    it = plans->erase(it);
  }
}

void ModelRepository::RefuseCircles(const WantedEnsembles::Plans& asked, bool by_request,
                                    Plans* plans, Failures* failures) {
  for (auto it = plans->begin(); it != plans->end();) {
    const auto& [name, plan] = *it;
    if (!wanted_.CallsItself(name)) {
      ++it;
      continue;
    }
    Status status = InvalidArgError("load failed for model '", name,
                                    "': circular dependency between ensembles");
    for (const int64_t version : plan.load.versions) {
      lifecycle_->RecordFailure(name, version, status.message(), by_request);
    }
    wanted_.Failed(name, asked.at(name), lifecycle_->IsServing(name));
    failures->emplace(name, std::move(status));
    plans->erase(it);
    it = plans->begin();  // what is wanted again may close another circle
  }
}

ModelRepository::Failures ModelRepository::Carry(Plans plans, bool by_request, Failures* failures) {
  const WantedEnsembles::Plans asked = wanted_.Want(plans);
  RefuseCircles(asked, by_request, &plans, failures);
  const std::set<std::string> loaded = LoadPlans(std::move(plans), by_request, nullptr, failures);
  for (const auto& [name, plan] : asked) {
    if (failures->count(name) == 0) {
      wanted_.Loaded(name, plan);
    } else {
      wanted_.Failed(name, plan, lifecycle_->IsServing(name));
    }
  }
  return FollowSteps(asked, loaded);
}

std::set<std::string> ModelRepository::LoadPlans(Plans plans, bool by_request,
                                                 std::function<bool(const ModelPlan&)> may_start,
                                                 Failures* failures) {
  std::set<std::string> loaded;
  ApplyAgentsTo(by_request, &plans, failures);
  for (auto& [name, plan] : plans) {
    plan.load.instances_only = ChangesInstancesAlone(plan);
    for (const std::string& note : plan.notes) NEREID_LOG_WARN("model '", name, "': ", note);
  }
  const auto settled = [&](const ModelPlan& plan, const Status& status) {
    if (plan.agents != nullptr) plan.agents->FinishLoad(status.ok());
    if (status.ok() && !plan.load.instances_only) loaded.insert(plan.load.name);
    if (status.ok()) return Remember(plan);
    (*failures)[plan.load.name] = status;
  };
  LoadWaves(std::move(plans), lifecycle_, by_request, {std::move(may_start), settled}).Run();
  return loaded;
}

bool ModelRepository::IsForgettable(const ModelPlan& plan) const {
  return plan.load.files == nullptr && !lifecycle_->IsServing(plan.load.name) &&
         FindModel(Repositories(), plan.load.name).empty();
}

WantedEnsembles::Plans ModelRepository::Followers(const WantedEnsembles::Plans& tried,
                                                  const std::set<std::string>& loaded) {
  WantedEnsembles::Plans followers;
  for (const auto& [name, plan] : wanted_.CallersOf(loaded)) {
    if (tried.count(name) > 0) continue;
    if (IsForgettable(*plan)) {
      wanted_.Forget(name, plan);
      continue;
    }
    // Where another step does not serve, the ensemble goes on waiting for that one.
    const bool complete =
        std::all_of(plan->steps.begin(), plan->steps.end(),
                    [&](const std::string& step) { return lifecycle_->IsServing(step); });
    if (complete) followers.emplace(name, plan);
  }
  return followers;
}

ModelRepository::Failures ModelRepository::FollowSteps(const WantedEnsembles::Plans& tried,
                                                       const std::set<std::string>& loaded) {
  if (loaded.empty()) return {};
  const WantedEnsembles::Plans followers = Followers(tried, loaded);
  Plans plans;
  for (const auto& [name, plan] : followers) plans.emplace(name, *plan);
  Failures failures;
  // One that is unloaded by name meanwhile stays unloaded.
  const auto may_start = [&](const ModelPlan& plan) {
    return wanted_.IsWanted(plan.load.name, followers.at(plan.load.name));
  };
  const std::set<std::string> followed =
      LoadPlans(std::move(plans), /*by_request=*/false, may_start, &failures);
  for (const std::string& name : followed) wanted_.Loaded(name, followers.at(name));
  for (const auto& [name, status] : failures) {
    NEREID_LOG_ERROR(status.message());
    TakeDown(name, false);  // the steps are others than those that it was made for
    for (const int64_t version : followers.at(name)->load.versions) {
      lifecycle_->RecordFailure(name, version, status.message());
    }
  }
  failures.merge(FollowSteps(followers, followed));
  return failures;
}

Status ModelRepository::Summarise(const Failures& failures) {
  if (failures.empty()) return Status::Ok();
  std::string text = "failed to load all models";
  for (const auto& [name, status] : failures) text += StrCat("; ", status.message());
  return {StatusCode::kInternal, std::move(text)};
}

Status ModelRepository::LoadAll() {
  const std::vector<Repository> repositories = Repositories();
  NEREID_ASSIGN_OR_RETURN(const auto scanned, ScanRepositories(repositories));
  std::vector<std::string> names;
  for (const auto& [name, folders] : scanned) names.push_back(name);
  return LoadNamed(names);
}

Status ModelRepository::LoadNamed(const std::vector<std::string>& names) {
  const std::vector<Repository> repositories = Repositories();
  Plans plans;
  Failures failures;
  std::set<std::string> kept;
  for (const std::string& name : names) {
    for (std::string& each : KeptNames(name)) kept.insert(std::move(each));
  }
  AddPlans({kept.begin(), kept.end()}, repositories, &plans, &failures);
  Carry(std::move(plans), /*by_request=*/false, &failures);
  for (const auto& [name, status] : failures) NEREID_LOG_ERROR(status.message());
  return Summarise(failures);
}

bool ModelRepository::IsCurrent(const ModelPlan& plan) const {
  if (plan.overridden() || !lifecycle_->IsServing(plan.load.name)) return false;
  std::lock_guard lock(mutex_);
  const auto it = loaded_.find(plan.load.name);
  // Where a step's name means another model by now, the ensemble is another one too.
  // What a load call brought in place of the configuration stays, as in Triton, until the folder
  // changes.
  return it != loaded_.end() && it->second.fingerprint == plan.fingerprint &&
         it->second.steps == plan.steps;
}

bool ModelRepository::ChangesInstancesAlone(const ModelPlan& plan) const {
  if (plan.agents != nullptr || plan.load.files != nullptr) return false;
  if (!lifecycle_->IsServing(plan.load.name)) return false;
  std::lock_guard lock(mutex_);
  const auto it = loaded_.find(plan.load.name);
  if (it == loaded_.end()) return false;
  const Loaded& loaded = it->second;
  return loaded.agents == nullptr && loaded.files_fingerprint == plan.files_fingerprint &&
         loaded.versions == plan.load.versions &&
         config::DifferInInstanceGroupsAlone(loaded.config, plan.load.config);
}

void ModelRepository::Remember(const ModelPlan& plan) {
  Loaded loaded{plan.fingerprint,       plan.steps,         plan.agents,
                plan.files_fingerprint, plan.load.versions, plan.load.config};
  {
    std::lock_guard lock(mutex_);
    std::swap(loaded_[plan.load.name], loaded);
  }
  if (loaded.agents != nullptr) loaded.agents->Unload();
}

Status ModelRepository::Load(const std::string& name,
                             const std::vector<const Parameter*>& parameters) {
  const Names names = KeptNames(name);
  if (names.size() > 1 && !parameters.empty()) {
    std::string list;
    for (const std::string& kept : names) list += StrCat(list.empty() ? "'" : ", '", kept, "'");
    return InvalidArgError("failed to load '", name,
                           "' with parameters: the name is ambiguous: ", names.size(),
                           " models have it: ", list);
  }
  Status first_error;
  for (const std::string& kept : names) {
    Status status = LoadOne(kept, parameters);
    if (!status.ok() && first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}

Status ModelRepository::LoadOne(const std::string& name,
                                const std::vector<const Parameter*>& parameters) {
  const std::vector<Repository> repositories = Repositories();
  auto plan = PlanModel(repositories, name, config_rule_, parameters);
  if (!plan.ok()) {
    return FailedPlan(name, plan.status(), /*by_request=*/true);
  }
  if (IsCurrent(*plan)) return Status::Ok();
  Plans plans;
  Failures failures;
  plans.emplace(name, std::move(plan).value());
  // A step that cannot be planned fails the ensemble below, by name.
  AddSteps(name, repositories, /*by_request=*/true, &plans, &failures);
  Carry(std::move(plans), /*by_request=*/true, &failures);
  for (const auto& [failed, status] : failures) NEREID_LOG_ERROR(status.message());
  const auto own = failures.find(name);
  if (own == failures.end()) return Status::Ok();
  Status status = own->second;
  for (const auto& [failed, reason] : failures) {
    if (failed != name) status = {status.code(), StrCat(status.message(), "; ", reason.message())};
  }
  return status;
}

std::vector<std::string> ModelRepository::EnsemblesWith(const std::string& step) const {
  std::vector<std::string> ensembles;
  std::lock_guard lock(mutex_);
  for (const auto& [name, loaded] : loaded_) {
    if (std::find(loaded.steps.begin(), loaded.steps.end(), step) != loaded.steps.end()) {
      ensembles.push_back(name);
    }
  }
  return ensembles;
}

Status ModelRepository::Unload(const std::string& name, bool dependents) {
  for (const std::string& kept : KeptNames(name)) {
    NEREID_RETURN_IF_ERROR(UnloadOne(kept, dependents));
  }
  return Status::Ok();
}

Status ModelRepository::UnloadOne(const std::string& name, bool dependents) {
  const auto statuses = lifecycle_->Statuses();
  if (statuses.count(name) == 0 && FindModel(Repositories(), name).empty()) {
    NEREID_LOG_WARN("nothing to unload: no model '", name, "' is known");
    return Status::Ok();
  }
  wanted_.Forget(name);
  TakeDown(name, dependents);
  return Status::Ok();
}

void ModelRepository::TakeDown(const std::string& name, bool dependents) {
  const std::vector<std::string> steps = dependents ? ChainSteps(name) : std::vector<std::string>();
  Forget(name);
  for (const std::string& ensemble : EnsemblesWith(name)) {
    NEREID_LOG_INFO("unloading: ensemble '", ensemble, "' with its step '", name, "'");
    TakeDown(ensemble, false);
  }
  NEREID_LOG_INFO("unloading: ", name);
  lifecycle_->Unload(name);
  // As a rule there are no requests and the steps follow at once; long ones are not waited for.
  lifecycle_->WaitUntilUnloading(steps, std::chrono::steady_clock::now() + kMaxChainWait);
}

void ModelRepository::Forget(const std::string& name) {
  std::shared_ptr<AgentChain> agents;
  {
    std::lock_guard lock(mutex_);
    const auto it = loaded_.find(name);
    if (it == loaded_.end()) return;
    agents = std::move(it->second.agents);
    loaded_.erase(it);
  }
  if (agents != nullptr) agents->Unload();
}

std::vector<std::string> ModelRepository::ChainSteps(const std::string& ensemble) {
  std::vector<std::string> steps;
  {
    std::lock_guard lock(mutex_);
    const auto it = loaded_.find(ensemble);
    if (it == loaded_.end()) return {};
    steps = std::exchange(it->second.steps, {});
  }
  std::vector<std::string> chained, all;
  for (const std::string& step : steps) {
    if (!EnsemblesWith(step).empty()) continue;
    chained.push_back(step);
    for (std::string& deeper : ChainSteps(step)) all.push_back(std::move(deeper));
    Forget(step);
    wanted_.Forget(step);
  }
  lifecycle_->ThenUnload(ensemble, chained);
  all.insert(all.end(), chained.begin(), chained.end());
  return all;
}

void ModelRepository::UnloadAll() {
  wanted_.Clear();
  std::map<std::string, Loaded> loaded;
  {
    std::lock_guard lock(mutex_);
    loaded.swap(loaded_);
  }
  for (const auto& [name, model] : loaded) {
    if (model.agents != nullptr) model.agents->Unload();
  }
  // Ensembles first: they hold requests to their steps.
  for (const bool ensembles : {true, false}) {
    for (const auto& [name, versions] : lifecycle_->Statuses()) {
      const auto it = loaded.find(name);
      const bool is_ensemble = it != loaded.end() && !it->second.steps.empty();
      if (is_ensemble == ensembles) lifecycle_->Unload(name);
    }
  }
}

Status ModelRepository::Poll() {
  const std::vector<Repository> repositories = Repositories();
  NEREID_ASSIGN_OR_RETURN(const auto scanned, ScanRepositories(repositories));
  std::vector<std::string> names;
  for (const auto& [name, folders] : scanned) names.push_back(name);
  Plans plans;
  Failures failures;
  AddPlans(names, repositories, &plans, &failures);
  for (auto it = plans.begin(); it != plans.end();) {
    it = IsCurrent(it->second) ? plans.erase(it) : std::next(it);
  }
  Failures followers = Carry(std::move(plans), /*by_request=*/false, &failures);
  failures.merge(followers);
  std::vector<std::string> removed;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, loaded] : loaded_) {
      // With a second folder of its name nobody can say which one is meant.
      const auto folders = scanned.find(name);
      if (folders == scanned.end() || folders->second.size() > 1) removed.push_back(name);
    }
  }
  for (const std::string& name : removed) NEREID_RETURN_IF_ERROR(UnloadOne(name, false));
  return Summarise(failures);
}

Status ModelRepository::Register(Repository repository) {
  NEREID_RETURN_IF_ERROR(CheckIsLocal(repository.path));
  std::error_code ignored;
  if (!std::filesystem::is_directory(repository.path, ignored)) {
    return InvalidArgError("failed to register '", repository.path, "', repository not found");
  }
  std::lock_guard lock(mutex_);
  for (const Repository& other : repositories_) {
    if (other.path == repository.path) {
      return AlreadyExistsError("model repository '", repository.path,
                                "' has already been registered");
    }
  }
  repositories_.push_back(std::move(repository));
  return Status::Ok();
}

Status ModelRepository::Unregister(const std::string& path) {
  std::lock_guard lock(mutex_);
  const auto it = std::find_if(repositories_.begin(), repositories_.end(),
                               [&](const Repository& other) { return other.path == path; });
  if (it == repositories_.end()) {
    return InvalidArgError("failed to unregister '", path, "', repository not found");
  }
  repositories_.erase(it);
  return Status::Ok();
}

std::vector<IndexEntry> ModelRepository::Index(bool ready_only) const {
  ModelStatuses statuses = lifecycle_->Statuses();
  std::map<std::string, std::string> ambiguous;
  if (!ready_only) {
    const auto scanned = ScanRepositories(Repositories());
    if (scanned.ok()) {
      for (const auto& [name, folders] : *scanned) {
        statuses[name];
        if (folders.size() > 1) ambiguous[name] = "model appears in two or more repositories";
      }
    }
  }
  const bool qualified = HasNamespaces();
  std::vector<IndexEntry> index;
  for (const auto& [kept, versions] : statuses) {
    const std::string name(qualified ? PlainName(kept) : std::string_view(kept));
    if (versions.empty()) {
      const auto it = ambiguous.find(kept);
      index.push_back({name,
                       IndexEntry::kNoVersion,
                       {ModelState::kUnavailable, it == ambiguous.end() ? "" : it->second}});
    }
    for (const auto& [version, status] : versions) {
      if (ready_only && status.state != ModelState::kReady) continue;
      index.push_back({name, version, status});
    }
  }
  std::stable_sort(index.begin(), index.end(), [](const IndexEntry& a, const IndexEntry& b) {
    return a.name < b.name;  // those of several repositories together
  });
  return index;
}

bool ModelRepository::AllServing() const {
  for (const auto& [name, versions] : lifecycle_->Statuses()) {
    for (const auto& [version, status] : versions) {
      if (status.state == ModelState::kReady || status.state == ModelState::kUnloading) continue;
      if (IsUnloaded(status)) continue;
      if (status.state == ModelState::kUnavailable && !status.is_missed) continue;
      return false;
    }
  }
  return true;
}

}  // namespace nereid
