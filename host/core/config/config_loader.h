// Creates ModelConfigs: reads them from a model's folder, merges the fields that a backend
// completes and validates them. The steps of a load are ReadModelConfig -> PrepareInstances -> (the
// backend's ModelInitialize, MergeBackendConfig) -> FinishConfig. [any thread]
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/core/config/config_error.h"
#include "host/core/config/model_config.h"
#include "nereid/status.h"

namespace nereid::core::config {

// Where a model's configuration comes from.
struct ConfigSource {
  std::string name;         // of the model: the folder's name unless is_renamed
  std::string path;         // of the model's folder; empty for a configuration without files
  std::string config_name;  // prefers configs/<config_name>.pbtxt if set and if the file exists
  // Replaces the file's configuration: JSON, as in the load parameter `config`.
  std::optional<std::string> config_override;
  // `name` differs from the folder's name and replaces the name in the configuration.
  bool is_renamed = false;
  // No backend completes the configuration, so inputs and outputs are validated at once.
  bool is_complete = false;
};

// An instance group that the backend prefers (TRITONBACKEND_BackendAttribute).
struct PreferredGroup {
  InstanceGroup::Kind kind = InstanceGroup::Kind::kAuto;
  int32_t count = 1;
  std::vector<int32_t> devices;
};

struct InstanceDefaults {
  std::vector<int32_t> gpus;  // ids of the devices that may be used; empty: no GPU
  // Preferences of the backend, in order; they apply to fields that a model does not set.
  std::vector<PreferredGroup> preferred_groups;
};

// Reads, normalizes and validates everything except instance groups, and except inputs and outputs
// unless source.is_complete is set. A folder without a configuration gives an empty one, which the
// backend completes. INVALID_ARG lists every error with file, line, column and key.
Result<ModelConfig> ReadModelConfig(const ConfigSource& source);

// Like ReadModelConfig followed by FinishConfig, but returns all errors as a list, for checkers. A
// model whose backend completes its inputs and outputs has none of them here; that is no error.
ConfigErrors CheckModelConfig(const ConfigSource& source);

// Adds file, line and column to errors that have only a key, such as
// "ensemble_scheduling.step[0].model_name", from the text of the folder's configuration. A key that
// the text does not contain gets the position of the nearest enclosing key.
void LocateErrors(const ConfigSource& source, ConfigErrors* errors);

// Fills in the instance groups. Must be called before the backend sees the configuration.
Result<ModelConfig> PrepareInstances(const ModelConfig& config, const InstanceDefaults& defaults);

// Returns `config` with the instance groups of `groups`, to which PrepareInstances was applied.
Result<ModelConfig> WithInstanceGroups(const ModelConfig& config, const ModelConfig& groups);

// Which part of a ready model version must be reloaded when its configuration changes from `from`
// to `to`. The version policy is ignored, because it does not belong to one version.
// PrepareInstances must not have been applied to either configuration.
enum class ConfigChange { kNone, kInstances, kModel };
ConfigChange ChangeBetween(const ModelConfig& from, const ModelConfig& to);

// TRITONBACKEND_ModelSetConfig: merges inputs, outputs, max_batch_size, the scheduler and the
// decoupled policy of `json` into `current`. The scheduler is merged only if none was set;
// otherwise it must be of the same kind. INVALID_ARG if `json` is not a ModelConfig.
Result<ModelConfig> MergeBackendConfig(const ModelConfig& current, std::string_view json);

// Returns the configuration of an ensemble with `model_namespace` set in each step. `spaces` has
// one entry per step.
Result<ModelConfig> WithStepNamespaces(const ModelConfig& config,
                                       const std::vector<std::string>& spaces);

// The last step: fills in defaults that depend on fields that the backend completed, and validates
// inputs and outputs. The result stores its document as text: it takes less memory, but converting
// it again takes longer.
Result<ModelConfig> FinishConfig(const ModelConfig& config);

// The JSON that TRITONBACKEND_ModelConfig and the endpoint /config return.
std::string JsonText(const ModelConfig& config);

// The file that ReadModelConfig reads; empty if the folder has none.
std::string ConfigPath(const ConfigSource& source);

}  // namespace nereid::core::config
