#include "host/core/repository/desired_state.h"

#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "base/parallel_for.h"
#include "host/core/config/config_loader.h"

namespace nereid::core {
namespace {

constexpr std::string_view kFilePrefix = "file:";

struct Overrides {
  std::optional<std::string> config;
  std::vector<std::pair<std::string, std::string_view>> files;  // "<version>/<name>" -> content
};

// The bytes of a string or bytes parameter; nullopt for other types.
std::optional<std::string_view> Bytes(const Parameter& parameter) {
  if (const auto* text = std::get_if<std::string>(&parameter.value())) return *text;
  if (const auto* bytes = std::get_if<Parameter::Bytes>(&parameter.value())) {
    return std::string_view(static_cast<const char*>(bytes->base), bytes->size);
  }
  return std::nullopt;
}

Result<Overrides> ReadOverrides(const std::vector<const Parameter*>& parameters) {
  Overrides overrides;
  for (const Parameter* parameter : parameters) {
    const std::string& name = parameter->name();
    const auto content = Bytes(*parameter);
    const bool is_file = name.starts_with(kFilePrefix);
    if (name != "config" && !is_file) {
      return InvalidArgError("unrecognized load parameter '", name,
                             "': expected 'config' or 'file:<version>/<name>'");
    }
    if (!content.has_value()) {
      return InvalidArgError("load parameter '", name, "': expected a string or bytes");
    }
    if (is_file) {
      overrides.files.emplace_back(name.substr(kFilePrefix.size()), *content);
    } else {
      overrides.config = std::string(*content);
    }
  }
  if (!overrides.files.empty() && !overrides.config.has_value()) {
    return InvalidArgError("load parameter 'file:", overrides.files.front().first,
                           "': needs the parameter 'config' with it");
  }
  return overrides;
}

Result<std::string> LocateFolder(const std::vector<Repository>& repositories,
                                 const std::string& name) {
  const std::vector<ScannedModel> found = FindModel(repositories, name);
  if (found.size() == 1) return found.front().path;
  if (found.empty()) {
    std::string searched;
    for (const Repository& repository : repositories) {
      searched += StrCat(searched.empty() ? "'" : ", '", repository.path, "'");
    }
    if (!searched.empty()) searched = StrCat(": no folder '", name, "' in ", searched);
    return NotFoundError("model not found in any model repository", searched);
  }
  return InvalidArgError("model '", name, "' appears in two or more repositories: '", found[0].path,
                         "' and '", found[1].path, "'");
}

// Writes the files of a load call into a temporary model directory.
Result<std::string> StoreFiles(const Overrides& overrides, LoadPlan* plan) {
  NEREID_ASSIGN_OR_RETURN(TempFolder folder, TempFolder::Create());
  const std::string_view model = PlainName(plan->name);
  for (const auto& [path, content] : overrides.files) {
    // Paths are relative to the model's directory, even with a leading slash.
    const std::string plain =
        std::filesystem::path(path).lexically_normal().relative_path().string();
    NEREID_RETURN_IF_ERROR(folder.Write(StrCat(model, "/", plain), content));
  }
  std::string model_path = StrCat(folder.path(), "/", model);
  plan->files = std::make_shared<TempFolder>(std::move(folder));
  return model_path;
}

// Sets `steps` and, with model namespacing, `model_namespace` of the configuration's steps.
Status ReadSteps(const std::vector<Repository>& repositories, LoadPlan* plan) {
  ModelConfig& config = plan->config;
  if (!config.ensemble_scheduling.has_value() || !plan->version_error.ok()) return Status::Ok();
  std::vector<std::string> paths, spaces;
  for (const Repository& repository : repositories) paths.push_back(repository.path);
  NEREID_ASSIGN_OR_RETURN(
      const std::vector<std::string> keys,
      ResolveSteps(plan->name, config.ensemble_scheduling->steps, paths,
                   [&](const std::string& key) { return !FindModel(repositories, key).empty(); }));
  for (const std::string& key : keys) spaces.emplace_back(NamespaceOf(key));
  const std::set<std::string> steps(keys.begin(), keys.end());
  plan->steps.assign(steps.begin(), steps.end());
  if (!IsQualified(plan->name)) return Status::Ok();
  NEREID_ASSIGN_OR_RETURN(config, config::WithStepNamespaces(config, spaces));
  return Status::Ok();
}

// Reads the configuration in plan->model_path and selects versions from `folders`.
Status ReadFolder(const std::vector<Repository>& repositories, const ConfigLookup& rule,
                  VersionFolders folders, LoadPlan* plan) {
  std::vector<int64_t>& versions = folders.versions;
  plan->notes = std::move(folders.notes);
  const config::ConfigSource folder{std::string(PlainName(plan->name)),
                                    plan->model_path,
                                    rule.config_name,
                                    plan->config_override,
                                    plan->is_renamed,
                                    rule.needs_config};
  if (!folder.config_override && IsEmptyFolder(plan->model_path)) {
    return InvalidArgError("model folder '", plan->model_path,
                           "' is empty: expected config.pbtxt and a version folder such as '1'");
  }
  if (rule.needs_config && !folder.config_override && config::ConfigPath(folder).empty()) {
    return NotFoundError("failed to open text file for read ", folder.path,
                         "/config.pbtxt: No such file or directory");
  }
  NEREID_ASSIGN_OR_RETURN(plan->config, config::ReadModelConfig(folder));
  // An ensemble has no files: git does not store its empty version directory.
  if (versions.empty() && plan->config.is_ensemble()) versions = {1};
  auto selected =
      SelectVersions(plan->config.version_policy, versions, plan->model_path, &plan->notes);
  if (selected.ok()) {
    plan->versions = std::move(selected).value();
  } else {
    plan->version_error = std::move(selected).status().WithContext(
        StrCat("load failed for model '", plan->name,
               "': at least one version must be available under the version policy of model '",
               plan->name, "'"));
  }
  return ReadSteps(repositories, plan);
}

}  // namespace

Result<LoadPlan> ReadModel(const std::vector<Repository>& repositories, const std::string& name,
                           const ConfigLookup& rule,
                           const std::vector<const Parameter*>& parameters) {
  NEREID_ASSIGN_OR_RETURN(const Overrides overrides, ReadOverrides(parameters));
  LoadPlan plan;
  plan.name = name;
  NEREID_ASSIGN_OR_RETURN(plan.model_path, overrides.files.empty()
                                               ? LocateFolder(repositories, name)
                                               : StoreFiles(overrides, &plan));
  plan.is_renamed = std::filesystem::path(plan.model_path).filename() != PlainName(name);
  plan.config_override = overrides.config;
  // Computed before the directory is read, so that a concurrent change counts as a change.
  const std::string config_path =
      config::ConfigPath({std::string(PlainName(name)), plan.model_path, rule.config_name, {}});
  NEREID_ASSIGN_OR_RETURN(FolderScan scan, ScanModelFolder(plan.model_path, config_path));
  plan.fingerprint = scan.fingerprints.all;
  for (const auto& [version, fingerprint] : scan.fingerprints.versions) {
    plan.fingerprints[version] = scan.fingerprints.shared + fingerprint;
  }
  NEREID_RETURN_IF_ERROR(ReadFolder(repositories, rule, std::move(scan.folders), &plan));
  return plan;
}

std::vector<Result<LoadPlan>> ReadModels(const std::vector<Repository>& repositories,
                                         const std::vector<std::string>& names,
                                         const ConfigLookup& rule) {
  std::vector<Result<LoadPlan>> plans(names.size(), LoadPlan());
  ParallelFor(names.size(), [&](size_t i) {
    try {
      plans[i] = ReadModel(repositories, names[i], rule);
    } catch (const std::exception& e) {  // uncaught on another thread, it would end the process
      plans[i] = InternalError("model '", names[i], "': ", e.what());
    }
  });
  return plans;
}

Status ApplyAgents(RepoAgents* agents, const std::vector<Repository>& repositories,
                   const ConfigLookup& rule, LoadPlan* plan) {
  if (plan->config.repository_agents.empty()) return Status::Ok();
  NEREID_ASSIGN_OR_RETURN(plan->agents,
                          AgentChain::Load(agents, plan->config, plan->model_path, plan->files));
  plan->files = plan->agents;
  if (plan->agents->location() == plan->model_path) return Status::Ok();
  plan->model_path = plan->agents->location();
  plan->fingerprints.clear();  // they belong to the directory that the agents replaced
  Result<VersionFolders> folders = ScanVersions(plan->model_path);
  Status status = folders.status();
  if (status.ok()) status = ReadFolder(repositories, rule, *std::move(folders), plan);
  if (!status.ok() || !plan->version_error.ok()) plan->agents->FinishLoad(false);
  return status;
}

EnsemblePlans RequestedEnsembles::MarkRequested(const std::map<std::string, LoadPlan>& plans) {
  EnsemblePlans stored;
  for (const auto& [name, plan] : plans) {
    stored[name] = std::make_shared<const LoadPlan>(plan.steps.empty() ? LoadPlan() : plan);
  }
  std::lock_guard lock(mutex_);
  for (const auto& [name, plan] : stored) entries_[name].requested = plan;
  return stored;
}

void RequestedEnsembles::Settle(const std::string& name, const Plan& plan, bool is_loaded,
                                bool serves) {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(name);
  if (it == entries_.end()) return;  // unloaded meanwhile
  Entry& entry = it->second;
  if (is_loaded) entry.loaded = plan;
  if (entry.requested != plan) return;
  if (!is_loaded && serves) entry.requested = entry.loaded;
  if (entry.requested == nullptr || entry.requested->steps.empty()) entries_.erase(it);
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

EnsemblePlans RequestedEnsembles::All() const {
  EnsemblePlans plans;
  std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : entries_) {
    if (!entry.requested->steps.empty()) plans.emplace(name, entry.requested);
  }
  return plans;
}

}  // namespace nereid::core
