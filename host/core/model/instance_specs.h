// The instances that a configuration's groups ask for: names, kinds, devices, host policies. [load
// thread]
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "host/core/backend/instance.h"
#include "host/core/config/model_config.h"
#include "nereid/status.h"

namespace nereid {

using HostPolicies = std::map<std::string, std::vector<std::pair<std::string, std::string>>>;

// INVALID_ARG names the group that asks for what this machine does not have.
Result<std::vector<InstanceSpec>> MakeInstanceSpecs(const ModelConfig& config,
                                                    const HostPolicies& policies);

}  // namespace nereid
