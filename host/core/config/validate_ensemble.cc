// What an ensemble must satisfy by itself; its backend checks it against the models of its steps.
#include "base/concat.h"
#include "host/core/config/validate_parts.h"

namespace nereid::config {
namespace {

void ValidateStep(const ModelConfig& config, size_t index, Faults* faults) {
  const EnsembleStep& step = config.ensemble_scheduling->steps[index];
  const std::string key = StrCat("ensemble_scheduling.step[", index, "]");
  const auto require = [&](const char* field) {
    Add(faults, StrCat(key, ".", field),
        StrCat("must specify '", field, "' in step ", index, " of ensemble '", config.name, "'"));
  };
  if (step.model_name.empty()) require("model_name");
  if (step.input_map.empty()) require("input_map");
  if (step.output_map.empty()) require("output_map");
  if (step.model_version < -1) {
    Add(faults, key + ".model_version",
        StrCat("expected a version, or -1 for the latest, got ", step.model_version));
  }
}

// What is of models alone. Present or not is all that counts.
void RefuseFieldsOfModels(const ModelConfig& config, Faults* faults) {
  const std::string ensemble = StrCat(" for ensemble '", config.name, "'");
  if (!config.instance_groups.empty()) {
    Add(faults, "instance_group", StrCat("instance group should not be specified", ensemble));
  }
  if (config.has_optimization) {
    Add(faults, "optimization", StrCat("optimization should not be specified", ensemble));
  }
  if (!config.warmups.empty()) {
    Add(faults, "model_warmup", StrCat("model_warmup can not be specified", ensemble));
  }
}

}  // namespace

void ValidateEnsemble(const ModelConfig& config, Faults* faults) {
  const bool platform = config.platform == "ensemble";
  if (!config.ensemble_scheduling.has_value()) {
    if (!platform) return;
    Add(faults, "platform",
        StrCat("ensemble scheduling must be set for ensemble ", config.name,
               " whose platform is ensemble"));
    return;
  }
  if (!platform) {
    Add(faults, "ensemble_scheduling",
        StrCat("ensemble scheduling cannot be set for model '", config.name,
               "' whose platform is not ensemble, got '", config.platform, "'"));
  }
  RefuseFieldsOfModels(config, faults);
  if (config.ensemble_scheduling->steps.empty()) {
    Add(faults, "ensemble_scheduling.step",
        StrCat("must specify 'step' for ensemble '", config.name, "'"));
  }
  for (size_t i = 0; i < config.ensemble_scheduling->steps.size(); ++i) {
    ValidateStep(config, i, faults);
  }
}

}  // namespace nereid::config
