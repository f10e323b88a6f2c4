// What should serve: the models in the repositories and in load calls, read as load plans, and the
// ensembles that were requested. Does not access loaded models. [any thread]
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/core/handle/parameter.h"
#include "host/core/repository/agents.h"
#include "host/core/repository/folders.h"
#include "host/core/repository/plan.h"
#include "nereid/status.h"

namespace nereid::core {

// How model configurations are found.
struct ConfigLookup {
  std::string config_name;    // see config::ConfigSource
  bool needs_config = false;  // true: a directory without configuration is an error, because
                              // backends complete nothing
};

// Reads the model with the key `name` (see folders.h). NOT_FOUND if no repository contains it.
// INVALID_ARG lists every error of its configuration, or the candidates of an ambiguous name. A
// valid configuration without a loadable version yields a plan with `version_error`. Load
// parameters: `config` (JSON that replaces config.pbtxt) and `file:<version>/<name>` (file contents
// that replace the directory; require `config`). INVALID_ARG names any other parameter.
Result<LoadPlan> ReadModel(const std::vector<Repository>& repositories, const std::string& name,
                           const ConfigLookup& rule,
                           const std::vector<const Parameter*>& parameters = {});

// ReadModel for each of `names`, in the same order; reads several in parallel.
std::vector<Result<LoadPlan>> ReadModels(const std::vector<Repository>& repositories,
                                         const std::vector<std::string>& names,
                                         const ConfigLookup& rule);

// Runs the repository agents of the configuration. If they relocate the model's files, the plan is
// read again from the new directory, with the agents of the original configuration. The caller must
// call FinishLoad of the agents.
Status ApplyAgents(RepoAgents* agents, const std::vector<Repository>& repositories,
                   const ConfigLookup& rule, LoadPlan* plan);

// The ensembles that were requested to serve, whether they serve or wait for a step, with their
// plans. They are reloaded when one of their steps is loaded. [any thread]
class RequestedEnsembles {
 public:
  using Plan = std::shared_ptr<const LoadPlan>;

  // Records that a caller loads `plans`, ensembles or not: they replace previously requested plans
  // of the same names. Returns the stored plans, which identify them in the calls below.
  EnsemblePlans MarkRequested(const std::map<std::string, LoadPlan>& plans);
  // Records the result of a load. An ensemble that failed keeps waiting for its steps. If the
  // previous model still `serves`, its plan becomes the requested one again.
  void Settle(const std::string& name, const Plan& plan, bool is_loaded, bool serves);

  void Erase(const std::string& name);
  // Erases the entry unless another plan was requested since.
  void Erase(const std::string& name, const Plan& plan);
  void Clear();

  bool IsRequested(const std::string& name, const Plan& plan) const;
  EnsemblePlans All() const;

 private:
  struct Entry {
    Plan requested;  // an empty plan while a model that is not an ensemble is loaded
    Plan loaded;     // plan of the last successful load; null before
  };

  mutable std::mutex mutex_;  // guards entries_
  std::map<std::string, Entry> entries_;
};

}  // namespace nereid::core
