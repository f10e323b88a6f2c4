// Load plans: finds the directory of a model, reads its configuration and selects its versions.
// Does not access loaded models. [any thread]
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/core/handle/parameter.h"
#include "host/core/repository/agent_chain.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/scan.h"
#include "nereid/status.h"

namespace nereid::core {

// How model configurations are found.
struct ConfigLookup {
  std::string config_name;    // see config::ConfigSource
  bool needs_config = false;  // true: a directory without configuration is an error, because
                              // backends complete nothing
};

// What to load for a model, and the data that decides whether the load is needed.
struct LoadPlan {
  ModelLifecycle::Plan load;
  uint64_t fingerprint = 0;
  std::optional<std::string> config_override;  // from the load parameter `config`
  bool is_renamed = false;                     // its directory has another name
  bool is_requested = false;       // requested by its own name, not only as a step of an ensemble
  std::vector<std::string> steps;  // keys of the models that an ensemble calls
  std::vector<std::string> notes;  // for the log: skipped version directories and the reasons
  Status version_error;            // not Ok: no version can be loaded
  std::shared_ptr<AgentChain> agents;  // null before ApplyAgents and without agents

  bool overridden() const { return config_override.has_value(); }
};

// Creates the plan of the model with the key `name` (see model_name.h). For steps of an ensemble,
// its own repository takes precedence over others. NOT_FOUND if no repository contains the model.
// INVALID_ARG lists every error of its configuration, or the candidates of an ambiguous name. A
// valid configuration without a loadable version yields a plan with `version_error`.
Result<LoadPlan> PlanModel(const std::vector<Repository>& repositories, const std::string& name,
                           const ConfigLookup& rule);

// PlanModel for each of `names`, in the same order; reads several in parallel.
std::vector<Result<LoadPlan>> PlanModels(const std::vector<Repository>& repositories,
                                         const std::vector<std::string>& names,
                                         const ConfigLookup& rule);

// PlanModel with load parameters: `config` (JSON that replaces config.pbtxt) and
// `file:<version>/<name>` (file contents that replace the directory; require `config`). INVALID_ARG
// names any other parameter.
Result<LoadPlan> PlanModel(const std::vector<Repository>& repositories, const std::string& name,
                           const ConfigLookup& rule,
                           const std::vector<const Parameter*>& parameters);

// Runs the repository agents of the configuration. If they relocate the model's files, the plan is
// recomputed for the new directory, with the agents of the original configuration. The caller must
// call FinishLoad of the agents.
Status ApplyAgents(RepoAgents* agents, const std::vector<Repository>& repositories,
                   const ConfigLookup& rule, LoadPlan* plan);

}  // namespace nereid::core
