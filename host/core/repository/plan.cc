#include "host/core/repository/plan.h"

#include <algorithm>
#include <utility>

#include "host/core/config/config_loader.h"

namespace nereid::core {
namespace {

const std::vector<std::string>& StepsOf(const std::string& name, const EnsemblePlans& requested) {
  static const std::vector<std::string> kNone;
  const auto it = requested.find(name);
  return it == requested.end() ? kNone : it->second->steps;
}

// If the requested ensembles form a cycle through `name`, returns the ensemble in it that calls
// `name`.
std::optional<std::string> CallerInCycle(const std::string& name, const EnsemblePlans& requested) {
  std::set<std::string> seen;
  std::vector<std::string> pending = {name};
  while (!pending.empty()) {
    const std::string caller = std::move(pending.back());
    pending.pop_back();
    for (const std::string& step : StepsOf(caller, requested)) {
      if (step == name) return caller;
      if (seen.insert(step).second) pending.push_back(step);
    }
  }
  return std::nullopt;
}

// The nesting depths of the requested ensembles that `names` reach: 1 if none of the steps is an
// ensemble, 0 for models that are none. A cycle counts once.
std::map<std::string, size_t> Depths(std::vector<std::string> names,
                                     const EnsemblePlans& requested) {
  std::map<std::string, size_t> depths;  // 0: visited, but not yet known
  // Not recursive, because the chain may have any length. A name is pushed once to visit its steps
  // and then once to add them up.
  while (!names.empty()) {
    const std::string name = names.back();
    const std::vector<std::string>& steps = StepsOf(name, requested);
    const auto [depth, is_new] = depths.try_emplace(name, 0);
    if (is_new && !steps.empty()) {
      for (const std::string& step : steps) {
        if (depths.count(step) == 0) names.push_back(step);
      }
      continue;
    }
    names.pop_back();
    if (steps.empty() || depth->second > 0) continue;
    size_t deepest = 0;
    for (const std::string& step : steps) deepest = std::max(deepest, depths.at(step));
    depth->second = deepest + 1;
  }
  return depths;
}

// Describes the steps that do not serve; empty if there are none.
std::string MissingSteps(const LoadPlan& plan, const std::map<std::string, Status>& failures,
                         const Serves& serves) {
  std::string missing, failed;
  for (const std::string& step : plan.steps) {
    if (serves(step)) continue;
    if (const auto it = failures.find(step); it != failures.end()) {
      failed =
          StrCat("'", plan.name, "' depends on '", step, "' which has no loaded version. Model '",
                 step, "' loading failed with error: ", it->second.message());
    } else {
      missing += StrCat(missing.empty() ? "" : ", ", step);
    }
  }
  if (missing.empty()) return failed;
  return StrCat(plan.name, " contains models that are not available or ambiguous: ", missing);
}

// Returns the key under which the model of a step is stored.
Result<std::string> ResolveStep(const std::string& ensemble, const EnsembleStep& step,
                                const std::vector<std::string>& repositories,
                                const std::function<bool(const std::string&)>& exists) {
  const std::string& name = step.model_name;
  if (!IsQualified(ensemble)) {
    if (step.model_namespace.empty()) return name;
    return InvalidArgError("ensemble '", ensemble, "': step '", name, "' has model_namespace '",
                           step.model_namespace, "': the server has no model namespacing");
  }
  if (!step.model_namespace.empty()) return QualifiedName(step.model_namespace, name);
  std::string own = QualifiedName(NamespaceOf(ensemble), name);
  if (exists(own)) return own;
  std::vector<std::string> others;
  std::string list;
  for (const std::string& repository : repositories) {
    std::string other = QualifiedName(repository, name);
    if (!exists(other)) continue;
    list += StrCat(list.empty() ? "'" : ", '", other, "'");
    others.push_back(std::move(other));
  }
  if (others.empty()) return own;
  if (others.size() == 1) return others.front();
  return InvalidArgError("ensemble '", PlainName(ensemble), "': step '", name,
                         "' is ambiguous: its own repository does not have it, others do: ", list);
}

// Adds the unused steps of `ensemble` to `unused`. `going`: all models that are unloaded.
void AddUnusedSteps(const std::string& ensemble, const LoadedModels& loaded,
                    std::set<std::string>* going,
                    std::map<std::string, std::vector<std::string>>* unused) {
  going->insert(ensemble);
  const auto caller = loaded.find(ensemble);
  if (caller == loaded.end()) return;
  const auto stays = [&](const std::string& name) { return going->count(name) == 0; };
  for (const std::string& step : caller->second.steps) {
    const auto it = loaded.find(step);
    if (!stays(step) || (it != loaded.end() && it->second.is_requested)) continue;
    const std::vector<std::string> callers = EnsemblesCalling(step, loaded);
    if (std::any_of(callers.begin(), callers.end(), stays)) continue;
    (*unused)[ensemble].push_back(step);
    AddUnusedSteps(step, loaded, going, unused);
  }
}

}  // namespace

Result<std::vector<int64_t>> SelectVersions(const VersionPolicy& policy,
                                            const std::vector<int64_t>& available,
                                            const std::string& model_path,
                                            std::vector<std::string>* notes) {
  if (available.empty()) {
    return InvalidArgError("no version folder such as '", model_path, "/1'");
  }
  switch (policy.kind) {
    case VersionPolicy::Kind::kAll:
      return available;
    case VersionPolicy::Kind::kLatest: {
      const size_t count = std::min<size_t>(policy.num_latest, available.size());
      return std::vector<int64_t>(available.end() - static_cast<ptrdiff_t>(count), available.end());
    }
    case VersionPolicy::Kind::kSpecific:
      break;
  }
  std::vector<int64_t> selected = policy.specific;
  std::sort(selected.begin(), selected.end());
  selected.erase(std::unique(selected.begin(), selected.end()), selected.end());
  std::vector<int64_t> found;
  for (const int64_t version : selected) {
    if (std::binary_search(available.begin(), available.end(), version)) {
      found.push_back(version);
      continue;
    }
    const std::string fault = StrCat("version_policy: version ", version, " has no folder '",
                                     model_path, "/", version, "'");
    if (version == selected.back() && found.empty()) return InvalidArgError(fault);
    notes->push_back(fault);
  }
  return found;
}

Result<std::vector<std::string>> ResolveSteps(
    const std::string& ensemble, const std::vector<EnsembleStep>& steps,
    const std::vector<std::string>& repositories,
    const std::function<bool(const std::string&)>& exists) {
  std::vector<std::string> keys;
  for (const EnsembleStep& step : steps) {
    NEREID_ASSIGN_OR_RETURN(std::string key, ResolveStep(ensemble, step, repositories, exists));
    keys.push_back(std::move(key));
  }
  return keys;
}

bool IsUnchanged(const LoadPlan& plan, const LoadedModel& loaded) {
  // As in Triton, a configuration from a load call remains in use until the model's directory
  // changes.
  return !plan.config_override.has_value() && loaded.fingerprint == plan.fingerprint &&
         (loaded.is_overridden || loaded.steps == plan.steps);
}

VersionAction PlanVersion(const LoadPlan& plan, int64_t version,
                          std::optional<uint64_t> fingerprint, const ModelConfig& config) {
  const auto found = plan.fingerprints.find(version);
  // An ensemble is always loaded anew, because its steps may have been replaced.
  if (found == plan.fingerprints.end() || fingerprint != found->second ||
      plan.config.is_ensemble()) {
    return VersionAction::kReplace;
  }
  switch (config::ChangeBetween(config, plan.config)) {
    case config::ConfigChange::kNone:
      return VersionAction::kKeep;
    case config::ConfigChange::kInstances:
      return VersionAction::kUpdateInstances;
    case config::ConfigChange::kModel:
      break;
  }
  return VersionAction::kReplace;
}

NextLoads FindNextLoads(const std::map<std::string, LoadPlan>& waiting,
                        const std::map<std::string, LoadPlan>& running,
                        const std::map<std::string, Status>& failures, const Serves& serves) {
  const auto is_unsettled = [&](const std::string& step) {
    return waiting.count(step) > 0 || running.count(step) > 0;
  };
  NextLoads next;
  for (const auto& [name, plan] : waiting) {
    if (std::any_of(plan.steps.begin(), plan.steps.end(), is_unsettled)) continue;
    const std::string missing = MissingSteps(plan, failures, serves);
    if (missing.empty()) {
      next.start.push_back(name);
    } else {
      next.failures.emplace(
          name, InvalidArgError("load failed for model '", name, "': ensemble ", missing));
    }
  }
  if (!running.empty() || !next.start.empty() || !next.failures.empty()) return next;
  for (const auto& [name, plan] : waiting) {
    next.failures.emplace(name, InvalidArgError("load failed for model '", name,
                                                "': circular dependency between ensembles"));
  }
  return next;
}

bool AllStepsServe(const LoadPlan& plan, const Serves& serves) {
  return std::all_of(plan.steps.begin(), plan.steps.end(), serves);
}

std::map<std::string, Status> FindRefused(const std::map<std::string, LoadPlan>& plans,
                                          const EnsemblePlans& requested) {
  std::vector<std::string> ensembles;
  for (const auto& [name, plan] : plans) {
    if (!plan.steps.empty()) ensembles.push_back(name);
  }
  const std::map<std::string, size_t> depths = Depths(ensembles, requested);
  std::map<std::string, Status> refused;
  for (const std::string& name : ensembles) {
    const size_t depth = depths.at(name);
    if (depth <= kMaxEnsembleDepth) continue;
    refused.emplace(name,
                    InvalidArgError("load failed for model '", name, "': its ensembles are nested ",
                                    depth, " levels deep, limit ", kMaxEnsembleDepth));
  }
  for (auto name = ensembles.begin(); refused.empty() && name != ensembles.end(); ++name) {
    const std::optional<std::string> caller = CallerInCycle(*name, requested);
    if (!caller) continue;
    refused.emplace(*name, InvalidArgError("load failed for model '", *name,
                                           "': circular dependency between ensembles: ", *name,
                                           " -> ... -> ", *caller, " -> ", *name));
  }
  return refused;
}

EnsemblePlans CallersOf(const std::set<std::string>& steps, const EnsemblePlans& requested) {
  const auto is_called = [&](const std::string& step) { return steps.count(step) > 0; };
  EnsemblePlans callers = requested;
  std::erase_if(callers, [&](const auto& each) {
    const auto& [name, plan] = each;
    return std::none_of(plan->steps.begin(), plan->steps.end(), is_called) ||
           CallerInCycle(name, requested);
  });
  return callers;
}

std::vector<std::string> EnsemblesCalling(const std::string& step, const LoadedModels& loaded) {
  std::vector<std::string> ensembles;
  for (const auto& [name, model] : loaded) {
    if (std::count(model.steps.begin(), model.steps.end(), step) > 0) ensembles.push_back(name);
  }
  return ensembles;
}

std::map<std::string, std::vector<std::string>> FindUnusedSteps(const std::string& ensemble,
                                                                const LoadedModels& loaded) {
  std::set<std::string> going;
  std::map<std::string, std::vector<std::string>> unused;
  AddUnusedSteps(ensemble, loaded, &going, &unused);
  return unused;
}

std::vector<std::string> FindRemoved(const ScannedModels& scanned, const LoadedModels& loaded) {
  std::vector<std::string> removed;
  for (const auto& [name, model] : loaded) {
    const auto folders = scanned.find(name);
    if (folders == scanned.end() || folders->second.size() > 1) removed.push_back(name);
  }
  return removed;
}

Status SummarizeFailures(const std::map<std::string, Status>& failures) {
  if (failures.empty()) return Status::Ok();
  std::string text = "failed to load all models";
  for (const auto& [name, status] : failures) text += StrCat("; ", status.message());
  return {StatusCode::kInternal, std::move(text)};
}

}  // namespace nereid::core
