// The ensembles that were requested to serve, whether they serve or wait for a step, with their
// plans. They are reloaded when one of their steps is loaded. [any thread]
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "host/core/repository/load_plan.h"

namespace nereid::core {

// A request to an ensemble whose steps support inline execution executes all of them on the stack
// of the thread that brings it. One level of nesting takes about 2.7 KiB of a stack of 8 MiB.
inline constexpr size_t kMaxEnsembleDepth = 32;

class RequestedEnsembles {
 public:
  using Plan = std::shared_ptr<const LoadPlan>;
  using Plans = std::map<std::string, Plan>;

  // Records that a caller loads `plans`, ensembles or not: they replace previously requested plans
  // of the same names. Returns the stored plans, which identify them in the calls below.
  Plans MarkRequested(const std::map<std::string, LoadPlan>& plans);
  // Record the result of a load. No-ops for a plan that is no longer the requested one. An ensemble
  // that failed keeps waiting for its steps. If the previous model still `serves`, its plan becomes
  // the requested one again.
  void OnLoaded(const std::string& name, const Plan& plan);
  void OnFailed(const std::string& name, const Plan& plan, bool serves);

  void Erase(const std::string& name);
  // Erases the entry unless another plan was requested since.
  void Erase(const std::string& name, const Plan& plan);
  void Clear();

  bool IsRequested(const std::string& name, const Plan& plan) const;
  // If the steps of the requested ensembles form a cycle through `name`, returns the ensemble in it
  // that calls `name`.
  std::optional<std::string> FindCycle(const std::string& name) const;
  // The nesting depth of each of `names` that is a requested ensemble: 1 if none of its steps is an
  // ensemble. A cycle counts once.
  std::map<std::string, size_t> Depths(const std::set<std::string>& names) const;
  // The ensembles that call one of `steps` and are not part of a cycle.
  Plans CallersOf(const std::set<std::string>& steps) const;

 private:
  struct Entry {
    Plan requested;  // an empty plan while a model that is not an ensemble is loaded
    Plan loaded;     // plan of the last successful load; null before
  };
  std::optional<std::string> CallerInCycle(const std::string& name) const;

  mutable std::mutex mutex_;  // guards entries_
  std::map<std::string, Entry> entries_;
};

}  // namespace nereid::core
