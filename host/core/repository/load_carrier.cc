#include "repository/load_carrier.h"

#include <algorithm>
#include <utility>

#include "observe/log.h"
#include "repository/load_waves.h"

namespace nereid {

LoadCarrier::Failures LoadCarrier::Carry(bool by_request, LoadList* list) {
  const WantedEnsembles::Plans asked = wanted_->Want(list->plans);
  RefuseCircles(asked, list);
  const std::set<std::string> loaded = Load(by_request, nullptr, list);
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

std::set<std::string> LoadCarrier::Load(bool by_request,
                                        std::function<bool(const ModelPlan&)> may_start,
                                        LoadList* list) {
  planner_->ApplyAgents(by_request, list);
  for (auto& [name, plan] : list->plans) {
    plan.load.instances_only = lifecycle_->IsServing(name) && loaded_->ChangesInstancesAlone(plan);
    for (const std::string& note : plan.notes) NEREID_LOG_WARN("model '", name, "': ", note);
  }
  const auto remember = [this](const ModelPlan& plan) {
    if (plan.agents != nullptr) plan.agents->FinishLoad(true);
    loaded_->Remember(plan);
  };
  std::set<std::string> loaded;
  const auto settled = [&](const ModelPlan& plan, const Status& status) {
    if (status.ok()) {
      if (!plan.load.instances_only) loaded.insert(plan.load.name);
      return;
    }
    if (plan.agents != nullptr) plan.agents->FinishLoad(false);
    list->failures.insert_or_assign(plan.load.name, status);
  };
  LoadWaves(std::move(list->plans), lifecycle_, {std::move(may_start), remember, settled}).Run();
  list->plans.clear();
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
  const std::set<std::string> followed = Load(/*by_request=*/false, may_start, &list);
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
    lifecycle_->RecordFailure(follower.load.name, version, reason.message(), /*is_missed=*/true);
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
    const bool complete =
        std::all_of(plan->steps.begin(), plan->steps.end(),
                    [&](const std::string& step) { return lifecycle_->IsServing(step); });
    if (complete) followers.emplace(name, plan);
  }
  return followers;
}

bool LoadCarrier::IsForgettable(const ModelPlan& plan) const {
  return plan.load.files == nullptr && !lifecycle_->IsServing(plan.load.name) &&
         FindModel(repositories_->All(), plan.load.name).empty();
}

}  // namespace nereid
