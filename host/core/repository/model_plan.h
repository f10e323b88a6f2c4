// From a name to what a load needs: the folder found, the configuration read, the versions chosen.
// Touches no model. [any thread]
#pragma once

#include <string>
#include <vector>

#include "base/parameter.h"
#include "nereid/status.h"
#include "repository/model_lifecycle.h"
#include "repository/scan.h"

namespace nereid {

// A plan and what decides whether it must be carried out at all.
struct ModelPlan {
  ModelLifecycle::Plan load;
  uint64_t fingerprint = 0;
  bool overridden = false;         // made from load parameters, not from the folder alone
  std::vector<std::string> steps;  // models that an ensemble calls
};

// `config_name`: see ModelFolder. NOT_FOUND when no repository holds the model, INVALID_ARG with
// every fault of its configuration or version folders, or with the folders of an ambiguous name.
Result<ModelPlan> PlanModel(const std::vector<Repository>& repositories, const std::string& name,
                            const std::string& config_name);

// As PlanModel, with the load parameters `config` (JSON that replaces config.pbtxt) and
// `file:<version>/<name>` (contents that replace the folder; need `config`). INVALID_ARG names any
// other parameter.
Result<ModelPlan> PlanModel(const std::vector<Repository>& repositories, const std::string& name,
                            const std::string& config_name,
                            const std::vector<const Parameter*>& parameters);

}  // namespace nereid
