// Validates a configuration whose fields have the right types. Errors have keys; the loader adds
// positions. Included only by config/*.cc. [any thread]
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "host/core/config/config_error.h"
#include "host/core/config/model_config.h"
#include "host/core/config/proto_json.h"

namespace nereid::core::config {

// Validates everything except tensors and instance groups, which a backend may still complete.
void ValidateModel(const ModelConfig& config, const std::string& folder_name, ConfigErrors* errors);

void ValidateTensors(const ModelConfig& config, ConfigErrors* errors);

// Validates one output without comparing its name to the names of other outputs.
void ValidateOutput(const ModelConfig& config, size_t index, ConfigErrors* errors);

void ValidateInstanceGroups(const ModelConfig& config, const std::vector<int32_t>& gpus,
                            ConfigErrors* errors);

// ---- used by the validate*.cc files ----

void AddError(ConfigErrors* errors, std::string key, std::string message);

// Preferred batch sizes must be from 1 to max_batch_size. `what` names them in messages, for
// example "dynamic batching preferred size".
void ValidatePreferredSizes(const std::vector<int32_t>& sizes, const ModelConfig& config,
                            const char* what, const std::string& key, ConfigErrors* errors);

void ValidateEnsemble(const ModelConfig& config, ConfigErrors* errors);

void ValidateSequenceBatching(const ModelConfig& config, ConfigErrors* errors);

}  // namespace nereid::core::config
