#include "host/core/repository/load_graph.h"

#include <vector>

namespace nereid::core {

LoadGraph::LoadGraph(std::map<std::string, LoadPlan> plans, ModelLifecycle* lifecycle, Hooks hooks)
    : waiting_(std::move(plans)),
      lifecycle_(lifecycle),
      hooks_(std::move(hooks)),
      completions_(std::make_shared<CompletionQueue>(waiting_.size() + 1)) {}

void LoadGraph::Run() {
  StartReady();
  while (!running_.empty()) {
    auto [name, outcome] = std::move(completions_->Pop()).value();
    if (!outcome.status.ok()) failed_[name] = outcome.status.message();
    hooks_.settled(running_.at(name), outcome);
    running_.erase(name);
    StartReady();
  }
  // The plans that still wait depend on each other.
  while (!waiting_.empty()) {
    const std::string name = waiting_.begin()->first;
    Fail(name, InvalidArgError("load failed for model '", name,
                               "': circular dependency between ensembles"));
  }
}

void LoadGraph::StartReady() {
  // Repeated, because a failed ensemble may settle a step of another one.
  for (size_t before = waiting_.size() + 1; waiting_.size() < before;) {
    before = waiting_.size();
    std::vector<std::string> ready;
    for (const auto& [name, plan] : waiting_) {
      if (!HasUnsettledSteps(plan)) ready.push_back(name);
    }
    for (const std::string& name : ready) {
      const std::string missing_steps = MissingSteps(waiting_.at(name));
      if (missing_steps.empty()) {
        Start(name);
      } else {
        Fail(name, InvalidArgError("load failed for model '", name, "': ensemble ", missing_steps));
      }
    }
  }
}

void LoadGraph::Start(const std::string& name) {
  auto node = waiting_.extract(name);
  if (hooks_.may_start != nullptr && !hooks_.may_start(node.mapped())) return;
  const LoadPlan& plan = running_.emplace(name, std::move(node.mapped())).first->second;
  const auto loaded = [this, &plan](const ModelLifecycle::Outcome& outcome) {
    hooks_.loaded(plan, outcome);
  };
  // After the push, the plan and this object may be destroyed.
  const auto done = [completions = completions_, name](ModelLifecycle::Outcome outcome) {
    completions->TryPush({name, std::move(outcome)});
  };
  lifecycle_->Load(plan.load, loaded, done);
}

void LoadGraph::Fail(const std::string& name, Status status) {
  const auto node = waiting_.extract(name);
  const LoadPlan& plan = node.mapped();
  for (const int64_t version : plan.load.versions) {
    lifecycle_->RecordFailure(name, version, status.message(), /*affects_readiness=*/false);
  }
  lifecycle_->failures().Write(name, plan.fingerprint, status.message(), plan.load.is_poll);
  failed_[name] = status.message();
  hooks_.settled(plan, {std::move(status)});
}

bool LoadGraph::HasUnsettledSteps(const LoadPlan& plan) const {
  for (const std::string& step : plan.steps) {
    if (waiting_.count(step) > 0 || running_.count(step) > 0) return true;
  }
  return false;
}

std::string LoadGraph::MissingSteps(const LoadPlan& plan) const {
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

}  // namespace nereid::core
