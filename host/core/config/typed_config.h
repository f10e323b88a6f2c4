// Canonical JSON -> ModelConfig. Included by config/*.cc alone. [any thread]
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "host/core/config/json_form.h"
#include "host/core/config/model_config.h"

namespace nereid::config {

// `json` must have come out of MessageToJson, so that every field has its type.
ModelConfig ToModelConfig(Json json);

std::vector<InstanceGroup> ToInstanceGroups(const Json& json);

// The inverse, from the form that a ModelConfig carries.
Json FromModelConfig(const ModelConfig& config);

}  // namespace nereid::config
