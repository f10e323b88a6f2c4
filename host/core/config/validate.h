// What a configuration must satisfy, beyond having the right types. Faults carry keys; the loader
// adds places. Included by config/*.cc and the checker. [any thread]
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "host/core/config/fault.h"
#include "host/core/config/json_form.h"
#include "host/core/config/model_config.h"

namespace nereid::config {

// All but tensors and instance groups, which a backend may still complete.
void ValidateModel(const ModelConfig& config, const std::string& folder_name, Faults* faults);

void ValidateTensors(const ModelConfig& config, Faults* faults);

// One output by itself, whatever others are named.
void ValidateOutput(const ModelConfig& config, size_t index, Faults* faults);

void ValidateInstanceGroups(const ModelConfig& config, const std::vector<int32_t>& gpus,
                            Faults* faults);

}  // namespace nereid::config
