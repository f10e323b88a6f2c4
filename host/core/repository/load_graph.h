// Executes loads that depend on each other. A load starts when the models that it calls are
// settled, and fails without an attempt if one of them does not serve. [the thread that requested
// the loads, except for one hook; waits for the load threads]
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/bounded_queue.h"
#include "host/core/repository/load_plan.h"
#include "host/core/repository/model_lifecycle.h"
#include "nereid/status.h"

namespace nereid::core {

class LoadGraph {
 public:
  struct Hooks {
    // Called right before a load. A plan for which it returns false is dropped. Null: all plans may
    // start.
    std::function<bool(const LoadPlan&)> may_start;
    // Called for a loaded plan, before another load or unload of the model begins. [a load thread]
    std::function<void(const LoadPlan&, const ModelLifecycle::Outcome&)> loaded;
    // Called once per plan, when it has loaded or failed.
    std::function<void(const LoadPlan&, const ModelLifecycle::Outcome&)> settled;
  };

  // `lifecycle` and the hooks must outlive this object.
  LoadGraph(std::map<std::string, LoadPlan> plans, ModelLifecycle* lifecycle, Hooks hooks);

  // Returns when every plan has loaded or failed.
  void Run();

 private:
  // Shared with the load threads, which may still be inside TryPush when the last result is popped.
  using CompletionQueue = BoundedQueue<std::pair<std::string, ModelLifecycle::Outcome>>;

  // Starts or fails the plans whose steps are settled.
  void StartReady();
  void Start(const std::string& name);
  void Fail(const std::string& name, Status status);
  bool HasUnsettledSteps(const LoadPlan& plan) const;
  // Describes the steps that do not serve; empty if there are none.
  std::string MissingSteps(const LoadPlan& plan) const;

  std::map<std::string, LoadPlan> waiting_;
  std::map<std::string, LoadPlan> running_;
  std::map<std::string, std::string> failed_;  // error messages of failed loads, by name
  ModelLifecycle* const lifecycle_;
  const Hooks hooks_;
  const std::shared_ptr<CompletionQueue> completions_;
};

}  // namespace nereid::core
