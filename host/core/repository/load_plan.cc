#include "host/core/repository/load_plan.h"

#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "base/parallel_for.h"
#include "host/core/config/config_loader.h"
#include "host/core/repository/layout.h"
#include "host/core/repository/model_name.h"
#include "host/core/repository/scan.h"
#include "host/core/repository/temp_folder.h"

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
    const bool is_file = name.rfind(kFilePrefix, 0) == 0;
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
Result<std::string> StoreFiles(const std::string& name, const Overrides& overrides,
                               LoadPlan* plan) {
  NEREID_ASSIGN_OR_RETURN(TempFolder folder, TempFolder::Create());
  for (const auto& [path, content] : overrides.files) {
    // Paths are relative to the model's directory, even with a leading slash.
    const std::string plain =
        std::filesystem::path(path).lexically_normal().relative_path().string();
    NEREID_RETURN_IF_ERROR(folder.Write(StrCat(PlainName(name), "/", plain), content));
  }
  std::string model_path = StrCat(folder.path(), "/", PlainName(name));
  plan->load.files = std::make_shared<TempFolder>(std::move(folder));
  return model_path;
}

// Reads the configuration in plan->load.model_path and selects versions from `folders`.
Status ReadFolder(const ConfigLookup& rule, VersionFolders folders, LoadPlan* plan) {
  ModelLifecycle::Plan& load = plan->load;
  std::vector<int64_t>& versions = folders.versions;
  plan->notes = std::move(folders.notes);
  const config::ConfigSource folder{std::string(PlainName(load.name)),
                                    load.model_path,
                                    rule.config_name,
                                    plan->config_override,
                                    plan->is_renamed,
                                    rule.needs_config};
  if (!folder.config_override && IsEmptyFolder(load.model_path)) {
    return InvalidArgError("model folder '", load.model_path,
                           "' is empty: expected config.pbtxt and a version folder such as '1'");
  }
  if (rule.needs_config && !folder.config_override && config::ConfigPath(folder).empty()) {
    return NotFoundError("failed to open text file for read ", folder.path,
                         "/config.pbtxt: No such file or directory");
  }
  NEREID_ASSIGN_OR_RETURN(load.config, config::ReadModelConfig(folder));
  // An ensemble has no files: git does not store its empty version directory.
  if (versions.empty() && load.config.is_ensemble()) versions = {1};
  auto selected =
      SelectVersions(load.config.version_policy, versions, load.model_path, &plan->notes);
  if (selected.ok()) {
    load.versions = std::move(selected).value();
  } else {
    plan->version_error = std::move(selected).status().WithContext(
        StrCat("load failed for model '", load.name,
               "': at least one version must be available under the version policy of model '",
               load.name, "'"));
  }
  return Status::Ok();
}

// Returns the key under which the model of a step is stored.
Result<std::string> ResolveStep(const std::vector<Repository>& repositories,
                                const std::string& ensemble, const EnsembleStep& step) {
  const std::string& name = step.model_name;
  if (!IsQualified(ensemble)) {
    if (step.model_namespace.empty()) return name;
    return InvalidArgError("ensemble '", ensemble, "': step '", name, "' has model_namespace '",
                           step.model_namespace, "': the server has no model namespacing");
  }
  if (!step.model_namespace.empty()) return QualifiedName(step.model_namespace, name);
  std::string own = QualifiedName(NamespaceOf(ensemble), name);
  if (!FindModel(repositories, own).empty()) return own;
  std::vector<std::string> others;
  std::string list;
  for (const Repository& repository : repositories) {
    std::string other = QualifiedName(repository.path, name);
    if (FindModel({repository}, other).empty()) continue;
    list += StrCat(list.empty() ? "'" : ", '", other, "'");
    others.push_back(std::move(other));
  }
  if (others.empty()) return own;
  if (others.size() == 1) return others.front();
  return InvalidArgError("ensemble '", PlainName(ensemble), "': step '", name,
                         "' is ambiguous: its own repository does not have it, others do: ", list);
}

// Sets `steps` and, with model namespacing, `model_namespace` of the configuration's steps.
Status ResolveSteps(const std::vector<Repository>& repositories, LoadPlan* plan) {
  ModelConfig& config = plan->load.config;
  if (!config.ensemble_scheduling.has_value() || !plan->version_error.ok()) return Status::Ok();
  std::set<std::string> steps;
  std::vector<std::string> spaces;
  for (const EnsembleStep& step : config.ensemble_scheduling->steps) {
    NEREID_ASSIGN_OR_RETURN(std::string key, ResolveStep(repositories, plan->load.name, step));
    spaces.emplace_back(NamespaceOf(key));
    steps.insert(std::move(key));
  }
  plan->steps.assign(steps.begin(), steps.end());
  if (!IsQualified(plan->load.name)) return Status::Ok();
  NEREID_ASSIGN_OR_RETURN(config, config::WithStepNamespaces(config, spaces));
  return Status::Ok();
}

Result<LoadPlan> Plan(const std::vector<Repository>& repositories, const std::string& name,
                      const ConfigLookup& rule, const Overrides& overrides) {
  LoadPlan plan;
  if (overrides.files.empty()) {
    NEREID_ASSIGN_OR_RETURN(plan.load.model_path, LocateFolder(repositories, name));
  } else {
    NEREID_ASSIGN_OR_RETURN(plan.load.model_path, StoreFiles(name, overrides, &plan));
  }
  plan.load.name = name;
  plan.is_renamed = std::filesystem::path(plan.load.model_path).filename() != PlainName(name);
  plan.config_override = overrides.config;
  // Computed before the directory is read, so that a concurrent change counts as a change.
  const std::string config_path = config::ConfigPath(
      {std::string(PlainName(name)), plan.load.model_path, rule.config_name, {}});
  NEREID_ASSIGN_OR_RETURN(FolderScan scan, ScanModelFolder(plan.load.model_path, config_path));
  plan.fingerprint = scan.fingerprints.all;
  for (const auto& [version, fingerprint] : scan.fingerprints.versions) {
    plan.load.fingerprints[version] = scan.fingerprints.shared + fingerprint;
  }
  NEREID_RETURN_IF_ERROR(ReadFolder(rule, std::move(scan.folders), &plan));
  NEREID_RETURN_IF_ERROR(ResolveSteps(repositories, &plan));
  return plan;
}

}  // namespace

Result<LoadPlan> PlanModel(const std::vector<Repository>& repositories, const std::string& name,
                           const ConfigLookup& rule) {
  return Plan(repositories, name, rule, {});
}

Result<LoadPlan> PlanModel(const std::vector<Repository>& repositories, const std::string& name,
                           const ConfigLookup& rule,
                           const std::vector<const Parameter*>& parameters) {
  NEREID_ASSIGN_OR_RETURN(const Overrides overrides, ReadOverrides(parameters));
  return Plan(repositories, name, rule, overrides);
}

std::vector<Result<LoadPlan>> PlanModels(const std::vector<Repository>& repositories,
                                         const std::vector<std::string>& names,
                                         const ConfigLookup& rule) {
  std::vector<std::optional<Result<LoadPlan>>> made(names.size());
  ParallelFor(names.size(), [&](size_t i) {
    try {
      made[i].emplace(PlanModel(repositories, names[i], rule));
    } catch (const std::exception& e) {  // uncaught on another thread, it would end the process
      made[i].emplace(InternalError("model '", names[i], "': ", e.what()));
    }
  });
  std::vector<Result<LoadPlan>> plans;
  plans.reserve(made.size());
  for (auto& plan : made) plans.push_back(*std::move(plan));
  return plans;
}

Status ApplyAgents(RepoAgents* agents, const std::vector<Repository>& repositories,
                   const ConfigLookup& rule, LoadPlan* plan) {
  ModelLifecycle::Plan& load = plan->load;
  if (load.config.repository_agents.empty()) return Status::Ok();
  NEREID_ASSIGN_OR_RETURN(plan->agents,
                          AgentChain::Load(agents, load.config, load.model_path, load.files));
  load.files = plan->agents;
  if (plan->agents->location() == load.model_path) return Status::Ok();
  load.model_path = plan->agents->location();
  load.fingerprints.clear();  // they belong to the directory that the agents replaced
  Result<VersionFolders> folders = ScanVersions(load.model_path);
  Status status = folders.status();
  if (status.ok()) status = ReadFolder(rule, *std::move(folders), plan);
  if (status.ok()) status = ResolveSteps(repositories, plan);
  if (!status.ok() || !plan->version_error.ok()) plan->agents->FinishLoad(false);
  return status;
}

}  // namespace nereid::core
