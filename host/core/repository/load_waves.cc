#include "host/core/repository/load_waves.h"

#include <vector>

namespace nereid {

LoadWaves::LoadWaves(std::map<std::string, ModelPlan> plans, ModelLifecycle* lifecycle, Hooks hooks)
    : waiting_(std::move(plans)),
      lifecycle_(lifecycle),
      hooks_(std::move(hooks)),
      finished_(std::make_shared<Finished>(waiting_.size() + 1)) {}

void LoadWaves::Run() {
  StartReady();
  while (!running_.empty()) {
    auto [name, outcome] = std::move(finished_->Pop()).value();
    if (!outcome.status.ok()) failed_[name] = outcome.status.message();
    hooks_.settled(running_.at(name), outcome);
    running_.erase(name);
    StartReady();
  }
  // What still waits, waits for itself.
  while (!waiting_.empty()) {
    const std::string name = waiting_.begin()->first;
    Fail(name, InvalidArgError("load failed for model '", name,
                               "': circular dependency between ensembles"));
  }
}

void LoadWaves::StartReady() {
  // Repeated while failing one ensemble settles another.
  for (size_t before = waiting_.size() + 1; waiting_.size() < before;) {
    before = waiting_.size();
    std::vector<std::string> ready;
    for (const auto& [name, plan] : waiting_) {
      if (!Waits(plan)) ready.push_back(name);
    }
    for (const std::string& name : ready) {
      const std::string obstacle = Obstacle(waiting_.at(name));
      if (obstacle.empty()) {
        Start(name);
      } else {
        Fail(name, InvalidArgError("load failed for model '", name, "': ensemble ", obstacle));
      }
    }
  }
}

void LoadWaves::Start(const std::string& name) {
  auto node = waiting_.extract(name);
  if (hooks_.may_start != nullptr && !hooks_.may_start(node.mapped())) return;
  const ModelPlan& plan = running_.emplace(name, std::move(node.mapped())).first->second;
  // Once it is pushed the plan may be gone, and this object.
  const auto done = [this, &plan, finished = finished_, name](ModelLifecycle::Outcome outcome) {
    if (outcome.status.ok()) hooks_.loaded(plan, outcome);
    finished->TryPush({name, std::move(outcome)});
  };
  lifecycle_->Load(plan.load, done);
}

void LoadWaves::Fail(const std::string& name, Status status) {
  const auto node = waiting_.extract(name);
  const ModelPlan& plan = node.mapped();
  for (const int64_t version : plan.load.versions) {
    lifecycle_->RecordFailure(name, version, status.message(), /*is_missed=*/false);
  }
  failed_[name] = status.message();
  hooks_.settled(plan, {std::move(status)});
}

bool LoadWaves::Waits(const ModelPlan& plan) const {
  for (const std::string& step : plan.steps) {
    if (waiting_.count(step) > 0 || running_.count(step) > 0) return true;
  }
  return false;
}

std::string LoadWaves::Obstacle(const ModelPlan& plan) const {
  const std::string& name = plan.load.name;
  std::string missing, failed;
  for (const std::string& step : plan.steps) {
    if (lifecycle_->IsServing(step)) continue;
    if (const auto it = failed_.find(step); it != failed_.end()) {
      failed = StrCat("'", name, "' depends on '", step, "' which has no loaded version. Model '",
                      step, "' loading failed with error: ", it->second);
    } else {
      missing += StrCat(missing.empty() ? "" : ", ", step);
    }
  }
  if (missing.empty()) return failed;
  return StrCat(name, " contains models that are not available or ambiguous: ", missing);
}

}  // namespace nereid
