#include "host/core/repository/load_execution.h"

#include <algorithm>
#include <utility>

#include "host/core/observe/log.h"
#include "host/core/repository/load_graph.h"

namespace nereid::core {
namespace {

bool AllStepsServe(const LoadPlan& plan, const ModelLifecycle& lifecycle) {
  return std::all_of(plan.steps.begin(), plan.steps.end(),
                     [&](const std::string& step) { return lifecycle.IsServing(step); });
}

}  // namespace

LoadExecution::Failures LoadExecution::Run(LoadList* list) {
  const RequestedEnsembles::Plans requested = requested_ensembles_->MarkRequested(list->plans);
  RejectDeepEnsembles(list);
  for (const auto& [name, plan] : requested) {
    if (list->failures.count(name) == 0) continue;
    requested_ensembles_->OnFailed(name, plan, lifecycle_->IsServing(name));
  }
  RejectCycles(requested, list);
  const std::set<std::string> loaded = Load(nullptr, list);
  for (const auto& [name, plan] : requested) {
    if (list->failures.count(name) == 0) {
      requested_ensembles_->OnLoaded(name, plan);
    } else {
      requested_ensembles_->OnFailed(name, plan, lifecycle_->IsServing(name));
    }
  }
  return ReloadCallers(requested, loaded);
}

void LoadExecution::RejectCycles(const RequestedEnsembles::Plans& requested, LoadList* list) {
  for (auto it = list->plans.begin(); it != list->plans.end();) {
    const auto& [name, plan] = *it;
    const std::optional<std::string> caller = requested_ensembles_->FindCycle(name);
    if (!caller) {
      ++it;
      continue;
    }
    Status status = InvalidArgError("load failed for model '", name,
                                    "': circular dependency between ensembles: ", name,
                                    " -> ... -> ", *caller, " -> ", name);
    for (const int64_t version : plan.load.versions) {
      lifecycle_->RecordFailure(name, version, status.message(), /*affects_readiness=*/false);
    }
    lifecycle_->failures().Write(name, plan.fingerprint, status.message(), list->is_poll);
    requested_ensembles_->OnFailed(name, requested.at(name), lifecycle_->IsServing(name));
    list->failures.emplace(name, std::move(status));
    list->plans.erase(it);
    it = list->plans.begin();  // a restored ensemble may close another cycle
  }
}

void LoadExecution::RejectDeepEnsembles(LoadList* list) {
  std::set<std::string> names;
  for (const auto& [name, plan] : list->plans) {
    if (!plan.steps.empty()) names.insert(name);
  }
  for (const auto& [name, depth] : requested_ensembles_->Depths(names)) {
    if (depth <= kMaxEnsembleDepth) continue;
    const auto it = list->plans.find(name);
    Status status = InvalidArgError("load failed for model '", name, "': its ensembles are nested ",
                                    depth, " levels deep, limit ", kMaxEnsembleDepth);
    for (const int64_t version : it->second.load.versions) {
      lifecycle_->RecordFailure(name, version, status.message(), /*affects_readiness=*/false);
    }
    lifecycle_->failures().Write(name, it->second.fingerprint, status.message(), list->is_poll);
    list->failures.insert_or_assign(name, std::move(status));
    list->plans.erase(it);
  }
}

std::set<std::string> LoadExecution::Load(std::function<bool(const LoadPlan&)> may_start,
                                          LoadList* list) {
  RejectDeepEnsembles(list);
  load_planner_->ApplyAgents(list);
  for (const auto& [name, plan] : list->plans) {
    for (const std::string& note : plan.notes) NEREID_LOG_WARN("model '", name, "': ", note);
  }
  std::set<std::string> loaded;
  LoadList interrupted;  // ensembles one of whose steps was unloaded during their load
  const auto record = [this](const LoadPlan& plan, const ModelLifecycle::Outcome& outcome) {
    if (plan.agents != nullptr) plan.agents->FinishLoad(true);
    loaded_->Record(plan, outcome.keeps_versions);
  };
  const auto settled = [&](const LoadPlan& plan, const ModelLifecycle::Outcome& outcome) {
    if (outcome.is_new) loaded.insert(plan.load.name);
    if (!outcome.status.ok()) {
      if (plan.agents != nullptr) plan.agents->FinishLoad(false);
      list->failures.insert_or_assign(plan.load.name, outcome.status);
      return;
    }
    // An unload of a model looks for its callers afterwards. So either the unload or this check
    // sees the conflict.
    if (AllStepsServe(plan, *lifecycle_)) return;
    interrupted.plans.emplace(plan.load.name, plan);
    (void)unloader_->Unload(plan.load.name, false);
  };
  LoadGraph(std::move(list->plans), lifecycle_, {may_start, record, settled}).Run();
  list->plans.clear();
  // If a step serves again by now, its load could not find the ensemble as a caller: load the
  // ensemble again.
  std::erase_if(interrupted.plans, [&](const auto& each) {
    const auto& [name, plan] = each;
    const std::set<std::string> steps(plan.steps.begin(), plan.steps.end());
    return !AllStepsServe(plan, *lifecycle_) ||
           requested_ensembles_->CallersOf(steps).count(name) == 0;
  });
  if (!interrupted.plans.empty()) {
    loaded.merge(Load(std::move(may_start), &interrupted));
    list->failures.merge(interrupted.failures);
  }
  return loaded;
}

LoadExecution::Failures LoadExecution::ReloadCallers(const RequestedEnsembles::Plans& attempted,
                                                     const std::set<std::string>& loaded) {
  if (loaded.empty()) return {};
  const RequestedEnsembles::Plans callers = CallersToReload(attempted, loaded);
  LoadList list;
  for (const auto& [name, plan] : callers) list.plans.emplace(name, *plan);
  // An ensemble that is unloaded by name meanwhile stays unloaded.
  const auto may_start = [&](const LoadPlan& plan) {
    return requested_ensembles_->IsRequested(plan.load.name, callers.at(plan.load.name));
  };
  const std::set<std::string> reloaded = Load(may_start, &list);
  for (const std::string& name : reloaded) requested_ensembles_->OnLoaded(name, callers.at(name));
  for (const auto& [name, status] : list.failures) {
    // Other loads may have taken long: meanwhile a client may have loaded or unloaded this name.
    if (requested_ensembles_->IsRequested(name, callers.at(name)))
      UnloadFailedCaller(*callers.at(name), status);
  }
  list.failures.merge(ReloadCallers(callers, reloaded));
  return std::move(list.failures);
}

void LoadExecution::UnloadFailedCaller(const LoadPlan& caller, const Status& reason) {
  (void)unloader_->Unload(caller.load.name, false);
  for (const int64_t version : caller.load.versions) {
    lifecycle_->RecordFailure(caller.load.name, version, reason.message(),
                              /*affects_readiness=*/false);
  }
}

RequestedEnsembles::Plans LoadExecution::CallersToReload(const RequestedEnsembles::Plans& attempted,
                                                         const std::set<std::string>& loaded) {
  RequestedEnsembles::Plans callers;
  for (const auto& [name, plan] : requested_ensembles_->CallersOf(loaded)) {
    if (attempted.count(name) > 0) continue;
    if (IsRemoved(*plan)) {
      requested_ensembles_->Erase(name, plan);
      continue;
    }
    // If another step does not serve, the ensemble keeps waiting for that step.
    if (AllStepsServe(*plan, *lifecycle_)) callers.emplace(name, plan);
  }
  return callers;
}

bool LoadExecution::IsRemoved(const LoadPlan& plan) const {
  return plan.load.files == nullptr && !lifecycle_->IsServing(plan.load.name) &&
         FindModel(repositories_->All(), plan.load.name).empty();
}

}  // namespace nereid::core
