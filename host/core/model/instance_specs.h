// Derives the instances of a model (names, kinds, devices, host policies) from its instance groups.
// [load thread]
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "host/core/backend/instance.h"
#include "host/core/config/model_config.h"
#include "nereid/status.h"

namespace nereid::core {

using HostPolicies = std::map<std::string, std::vector<std::pair<std::string, std::string>>>;

// INVALID_ARG if a host policy is invalid or if all instances are passive.
Result<std::vector<InstanceSpec>> MakeInstanceSpecs(const ModelConfig& config,
                                                    const HostPolicies& policies);

}  // namespace nereid::core
