// Several loads that depend on each other: each starts when the models that it calls are settled,
// and fails without being tried when one of them does not serve. [the thread that asked for the
// loads, but for one hook; waits for the load threads]
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/bounded_queue.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/model_plan.h"
#include "nereid/status.h"

namespace nereid {

class LoadWaves {
 public:
  struct Hooks {
    // Asked right before a load; a plan that may not start is dropped. Null: all may.
    std::function<bool(const ModelPlan&)> may_start;
    // Called for a plan that has loaded, before another load or unload of it begins. [a load
    // thread]
    std::function<void(const ModelPlan&, const ModelLifecycle::Outcome&)> loaded;
    // Called once a plan, when it has loaded or failed.
    std::function<void(const ModelPlan&, const ModelLifecycle::Outcome&)> settled;
  };

  // `lifecycle` and the hooks outlive this object.
  LoadWaves(std::map<std::string, ModelPlan> plans, ModelLifecycle* lifecycle, Hooks hooks);

  // Returns when every plan is settled.
  void Run();

 private:
  // Shared with the load threads, which may still be inside TryPush when the last result was taken.
  using Finished = BoundedQueue<std::pair<std::string, ModelLifecycle::Outcome>>;

  // Starts or fails what waits for nothing.
  void StartReady();
  void Start(const std::string& name);
  void Fail(const std::string& name, Status status);
  bool Waits(const ModelPlan& plan) const;
  // Why an ensemble cannot be loaded: steps that do not serve. Empty: it can.
  std::string Obstacle(const ModelPlan& plan) const;

  std::map<std::string, ModelPlan> waiting_;
  std::map<std::string, ModelPlan> running_;
  std::map<std::string, std::string> failed_;  // what was loaded here in vain, and why
  ModelLifecycle* const lifecycle_;
  const Hooks hooks_;
  const std::shared_ptr<Finished> finished_;
};

}  // namespace nereid
