// Makes ModelConfigs: reads them from a model's folder, merges what a backend completes, checks
// them. The steps of a load are ReadModelConfig -> PrepareInstances -> (the backend's
// ModelInitialize, MergeBackendConfig) -> FinishConfig. [any thread]
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/core/config/fault.h"
#include "host/core/config/model_config.h"
#include "nereid/status.h"

namespace nereid::config {

struct ModelFolder {
  std::string name;         // the model's: the folder's own, unless it is renamed
  std::string path;         // may be empty: a configuration without files
  std::string config_name;  // configs/<config_name>.pbtxt is preferred when set and present
  // Replaces the file's configuration: JSON, as the load parameter `config` carries it.
  std::optional<std::string> config_override;
  // `name` is another than the folder's: the name that the configuration says gives way.
  bool is_renamed = false;
  bool is_whole = false;  // no backend completes it: its inputs and outputs are judged at once
};

struct PreferredGroup {
  InstanceGroup::Kind kind = InstanceGroup::Kind::kAuto;
  int32_t count = 1;
  std::vector<int32_t> devices;
};

struct InstanceDefaults {
  std::vector<int32_t> gpus;  // device ids that may be used; empty: no GPU
  std::vector<PreferredGroup>
      preferred_groups;  // the backend's wish, for models that name no group
};

// Reads, normalises and validates all but instance groups, and but inputs and outputs where a
// backend completes them. A folder without
// configuration gives an empty one for the backend to complete. INVALID_ARG lists every fault with
// file, line, column and key.
Result<ModelConfig> ReadModelConfig(const ModelFolder& folder);

// As ReadModelConfig followed by FinishConfig, with every fault in a list: for checkers. A model
// whose backend completes its inputs and outputs has none of them here: their absence is no fault.
Faults CheckModelConfig(const ModelFolder& folder);

// Adds file, line and column to faults that have only a key
// ("ensemble_scheduling.step[0].model_name"), from the text of the folder's configuration; a key
// that is not written gets the place of the nearest one around it.
void LocateFaults(const ModelFolder& folder, Faults* faults);

// Gives the model its instance groups. To be called before the backend sees the configuration.
Result<ModelConfig> PrepareInstances(const ModelConfig& config, const InstanceDefaults& defaults);

// `config` with the instance groups of `groups`, a prepared one.
Result<ModelConfig> WithInstanceGroups(const ModelConfig& config, const ModelConfig& groups);

// What of a model that serves must change with its configuration. A policy of versions is none of
// a version's own. Neither configuration is prepared.
enum class ConfigChange { kNone, kInstances, kModel };
ConfigChange ChangeBetween(const ModelConfig& from, const ModelConfig& to);

// TRITONBACKEND_ModelSetConfig: of `json` only inputs, outputs, max_batch_size, the scheduler
// (where none was set; else of the same kind) and the decoupled policy are taken. INVALID_ARG when
// it is no ModelConfig.
Result<ModelConfig> MergeBackendConfig(const ModelConfig& current, std::string_view json);

// The configuration of an ensemble with `model_namespace` of its steps set; `spaces`: one a step.
Result<ModelConfig> WithStepNamespaces(const ModelConfig& config,
                                       const std::vector<std::string>& spaces);

// The last step: defaults that depend on what the backend completed, and the checks of inputs and
// outputs. Takes less memory from then on, but longer to work on.
Result<ModelConfig> FinishConfig(const ModelConfig& config);

// The form that TRITONBACKEND_ModelConfig and /config hand out.
std::string JsonText(const ModelConfig& config);

// The file that ReadModelConfig reads: empty when the folder has none.
std::string ConfigPath(const ModelFolder& folder);

}  // namespace nereid::config
