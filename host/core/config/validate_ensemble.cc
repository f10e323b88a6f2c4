// Validates the configuration of an ensemble by itself. The ensemble backend compares it with the
// models of its steps.
#include "base/concat.h"
#include "host/core/config/validate.h"

namespace nereid::core::config {
namespace {

void ValidateStep(const ModelConfig& config, size_t index, ConfigErrors* errors) {
  const EnsembleStep& step = config.ensemble_scheduling->steps[index];
  const std::string key = StrCat("ensemble_scheduling.step[", index, "]");
  const auto require = [&](const char* field) {
    AddError(
        errors, StrCat(key, ".", field),
        StrCat("must specify '", field, "' in step ", index, " of ensemble '", config.name, "'"));
  };
  if (step.model_name.empty()) require("model_name");
  if (step.input_map.empty()) require("input_map");
  if (step.output_map.empty()) require("output_map");
  if (step.model_version < -1) {
    AddError(errors, key + ".model_version",
             StrCat("expected a version, or -1 for the latest, got ", step.model_version));
  }
}

// Reports fields that only models other than ensembles may have, whatever their values are.
void RefuseFieldsOfModels(const ModelConfig& config, ConfigErrors* errors) {
  const std::string ensemble = StrCat(" for ensemble '", config.name, "'");
  if (!config.instance_groups.empty()) {
    AddError(errors, "instance_group", StrCat("instance group should not be specified", ensemble));
  }
  if (config.has_optimization) {
    AddError(errors, "optimization", StrCat("optimization should not be specified", ensemble));
  }
  if (!config.warmups.empty()) {
    AddError(errors, "model_warmup", StrCat("model_warmup can not be specified", ensemble));
  }
}

}  // namespace

void ValidateEnsemble(const ModelConfig& config, ConfigErrors* errors) {
  const bool platform = config.platform == "ensemble";
  if (!config.ensemble_scheduling.has_value()) {
    if (!platform) return;
    AddError(errors, "platform",
             StrCat("ensemble scheduling must be set for ensemble ", config.name,
                    " whose platform is ensemble"));
    return;
  }
  if (!platform) {
    AddError(errors, "ensemble_scheduling",
             StrCat("ensemble scheduling cannot be set for model '", config.name,
                    "' whose platform is not ensemble, got '", config.platform, "'"));
  }
  RefuseFieldsOfModels(config, errors);
  if (config.ensemble_scheduling->steps.empty()) {
    AddError(errors, "ensemble_scheduling.step",
             StrCat("must specify 'step' for ensemble '", config.name, "'"));
  }
  for (size_t i = 0; i < config.ensemble_scheduling->steps.size(); ++i) {
    ValidateStep(config, i, errors);
  }
}

}  // namespace nereid::core::config
