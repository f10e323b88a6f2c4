// From a name to what a load needs: the folder found, the configuration read, the versions chosen.
// Touches no model. [any thread]
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

namespace nereid {

// How the configurations of all models are found.
struct ConfigRule {
  std::string config_name;    // see config::ModelFolder
  bool needs_config = false;  // a folder without one is refused: backends complete nothing
};

// A plan and what decides whether it must be carried out at all.
struct ModelPlan {
  ModelLifecycle::Plan load;
  uint64_t fingerprint = 0;
  std::optional<std::string> config_override;  // made from load parameters, not the folder alone
  bool is_renamed = false;                     // its folder has another name
  bool is_asked_for = false;                   // by its name, not only as a step of an ensemble
  std::vector<std::string> steps;              // that an ensemble calls: names of their plans
  std::vector<std::string> notes;              // for the log: what is left out, and why
  Status no_version;                           // why there is nothing to load, where that is so
  std::shared_ptr<AgentChain> agents;          // null before ApplyAgents and where there are none

  bool overridden() const { return config_override.has_value(); }
};

// `name`: under which the model is kept, see model_name.h. Steps of an ensemble mean the models of
// its own repository before those of others. NOT_FOUND when no repository holds the model,
// INVALID_ARG with every fault of its configuration, or with the candidates of an ambiguous name. A
// plan whose configuration is sound and leaves no version is one with `no_version`.
Result<ModelPlan> PlanModel(const std::vector<Repository>& repositories, const std::string& name,
                            const ConfigRule& rule);

// As PlanModel for each of `names`, in their order; several are read at once.
std::vector<Result<ModelPlan>> PlanModels(const std::vector<Repository>& repositories,
                                          const std::vector<std::string>& names,
                                          const ConfigRule& rule);

// As PlanModel, with the load parameters `config` (JSON that replaces config.pbtxt) and
// `file:<version>/<name>` (contents that replace the folder; need `config`). INVALID_ARG names any
// other parameter.
Result<ModelPlan> PlanModel(const std::vector<Repository>& repositories, const std::string& name,
                            const ConfigRule& rule,
                            const std::vector<const Parameter*>& parameters);

// Lets the repository agents of the configuration act on the load. Where they move the model's
// files, the plan becomes that of the new folder; the agents of the old one remain. FinishLoad is
// the caller's duty.
Status ApplyAgents(RepoAgents* agents, const std::vector<Repository>& repositories,
                   const ConfigRule& rule, ModelPlan* plan);

}  // namespace nereid
