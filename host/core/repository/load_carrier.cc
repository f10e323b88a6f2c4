#include "host/core/repository/load_carrier.h"

#include <algorithm>
#include <utility>

#include "host/core/observe/log.h"
#include "host/core/repository/load_waves.h"

namespace nereid {
namespace {

bool StepsServe(const ModelPlan& plan, const ModelLifecycle& lifecycle) {
  return std::all_of(plan.steps.begin(), plan.steps.end(),
                     [&](const std::string& step) { return lifecycle.IsServing(step); });
}

}  // namespace

LoadCarrier::Failures LoadCarrier::Carry(LoadList* list) {
  const WantedEnsembles::Plans asked = wanted_->Want(list->plans);
  RefuseCircles(asked, list);
  const std::set<std::string> loaded = Load(nullptr, list);
  for (const auto& [name, plan] : asked) {
    if (list->failures.count(name) == 0) {
      wanted_->Loaded(name, plan);
    } else {
      wanted_->Failed(name, plan, lifecycle_->IsServing(name));
    }
  }
  return FollowSteps(asked, loaded);
}

void LoadCarrier::RefuseCircles(const WantedEnsembles::Plans& asked, LoadList* list) {
  for (auto it = list->plans.begin(); it != list->plans.end();) {
    const auto& [name, plan] = *it;
    const std::optional<std::string> last = wanted_->LastOfCircle(name);
    if (!last) {
      ++it;
      continue;
    }
    Status status = InvalidArgError("load failed for model '", name,
                                    "': circular dependency between ensembles: ", name,
                                    " -> ... -> ", *last, " -> ", name);
    for (const int64_t version : plan.load.versions) {
      lifecycle_->RecordFailure(name, version, status.message(), /*is_missed=*/false);
    }
    wanted_->Failed(name, asked.at(name), lifecycle_->IsServing(name));
    list->failures.emplace(name, std::move(status));
    list->plans.erase(it);
    it = list->plans.begin();  // what is wanted again may close another circle
  }
}

std::set<std::string> LoadCarrier::Load(std::function<bool(const ModelPlan&)> may_start,
                                        LoadList* list) {
  planner_->ApplyAgents(list);
  for (const auto& [name, plan] : list->plans) {
    for (const std::string& note : plan.notes) NEREID_LOG_WARN("model '", name, "': ", note);
  }
  std::set<std::string> loaded;
  LoadList torn;  // ensembles a step of which was unloaded while they were loaded
  const auto remember = [this](const ModelPlan& plan, const ModelLifecycle::Outcome& outcome) {
    if (plan.agents != nullptr) plan.agents->FinishLoad(true);
    loaded_->Remember(plan, outcome.keeps_versions);
  };
  const auto settled = [&](const ModelPlan& plan, const ModelLifecycle::Outcome& outcome) {
    if (outcome.is_new) loaded.insert(plan.load.name);
    if (!outcome.status.ok()) {
      if (plan.agents != nullptr) plan.agents->FinishLoad(false);
      list->failures.insert_or_assign(plan.load.name, outcome.status);
      return;
    }
    // Whoever unloads a model looks for its callers after it: one of the two sees the other.
    if (StepsServe(plan, *lifecycle_)) return;
    torn.plans.emplace(plan.load.name, plan);
    unloader_->TakeDown(plan.load.name, false);
  };
  LoadWaves(std::move(list->plans), lifecycle_, {may_start, remember, settled}).Run();
  list->plans.clear();
  // A step that is there again by now found no ensemble that could follow it.
  std::erase_if(torn.plans, [&](const auto& each) {
    const auto& [name, plan] = each;
    const std::set<std::string> steps(plan.steps.begin(), plan.steps.end());
    return !StepsServe(plan, *lifecycle_) || wanted_->CallersOf(steps).count(name) == 0;
  });
  if (!torn.plans.empty()) {
    loaded.merge(Load(std::move(may_start), &torn));
    list->failures.merge(torn.failures);
  }
  return loaded;
}

LoadCarrier::Failures LoadCarrier::FollowSteps(const WantedEnsembles::Plans& tried,
                                               const std::set<std::string>& loaded) {
  if (loaded.empty()) return {};
  const WantedEnsembles::Plans followers = Followers(tried, loaded);
  LoadList list;
  for (const auto& [name, plan] : followers) list.plans.emplace(name, *plan);
  // One that is unloaded by name meanwhile stays unloaded.
  const auto may_start = [&](const ModelPlan& plan) {
    return wanted_->IsWanted(plan.load.name, followers.at(plan.load.name));
  };
  const std::set<std::string> followed = Load(may_start, &list);
  for (const std::string& name : followed) wanted_->Loaded(name, followers.at(name));
  for (const auto& [name, status] : list.failures) {
    NEREID_LOG_ERROR(status.message());
    // Others took as long as they liked: the name may be a client's again, or unloaded.
    if (wanted_->IsWanted(name, followers.at(name))) GiveUp(*followers.at(name), status);
  }
  list.failures.merge(FollowSteps(followers, followed));
  return std::move(list.failures);
}

void LoadCarrier::GiveUp(const ModelPlan& follower, const Status& reason) {
  unloader_->TakeDown(follower.load.name, false);
  for (const int64_t version : follower.load.versions) {
    lifecycle_->RecordFailure(follower.load.name, version, reason.message(), /*is_missed=*/false);
  }
}

WantedEnsembles::Plans LoadCarrier::Followers(const WantedEnsembles::Plans& tried,
                                              const std::set<std::string>& loaded) {
  WantedEnsembles::Plans followers;
  for (const auto& [name, plan] : wanted_->CallersOf(loaded)) {
    if (tried.count(name) > 0) continue;
    if (IsForgettable(*plan)) {
      wanted_->Forget(name, plan);
      continue;
    }
    // Where another step does not serve, the ensemble goes on waiting for that one.
    if (StepsServe(*plan, *lifecycle_)) followers.emplace(name, plan);
  }
  return followers;
}

bool LoadCarrier::IsForgettable(const ModelPlan& plan) const {
  return plan.load.files == nullptr && !lifecycle_->IsServing(plan.load.name) &&
         FindModel(repositories_->All(), plan.load.name).empty();
}

}  // namespace nereid
