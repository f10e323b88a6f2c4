// Converts between canonical JSON and ModelConfig. Included only by config/*.cc. [any thread]
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/config/proto_json.h"

namespace nereid::core::config {

// `json` must come from MessageToJson, so that every field has the right type.
ModelConfig ToModelConfig(Json json);

std::vector<InstanceGroup> ToInstanceGroups(const Json& json);

// The document of a ModelConfig as JSON; an empty object if it has none.
Json FromModelConfig(const ModelConfig& config);

}  // namespace nereid::core::config
