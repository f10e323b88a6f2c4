#include "config/validate.h"

#include <algorithm>

#include "base/concat.h"
#include "config/validate_parts.h"

namespace nereid::config {
namespace {

bool DelaysTimeouts(const QueuePolicy& policy) {
  return policy.default_timeout_us != 0 &&
         policy.timeout_action == QueuePolicy::TimeoutAction::kDelay;
}

// What may overtake would have to wait for what it has overtaken.
void ValidateOrdering(const DynamicBatching& batching, Faults* faults) {
  if (!batching.preserve_ordering) return;
  if (batching.priority_levels > 1) {
    Add(faults, "dynamic_batching.priority_levels",
        StrCat("Only one priority level is allowed when 'preserve_ordering' is true, got ",
               batching.priority_levels));
  }
  const auto refuse = [faults](const std::string& key) {
    Add(faults, key,
        "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true");
  };
  if (DelaysTimeouts(batching.default_queue_policy)) {
    refuse("dynamic_batching.default_queue_policy");
  }
  for (const auto& [level, policy] : batching.priority_queue_policy) {
    if (DelaysTimeouts(policy)) refuse("dynamic_batching.priority_queue_policy");
  }
}

void ValidateDynamicBatching(const ModelConfig& config, Faults* faults) {
  if (!config.dynamic_batching.has_value()) return;
  const DynamicBatching& batching = *config.dynamic_batching;
  ValidatePreferredSizes(batching.preferred_batch_sizes, config.max_batch_size,
                         "dynamic_batching.preferred_batch_size", faults);
  const uint64_t levels = batching.priority_levels;
  if (levels == 0) return ValidateOrdering(batching, faults);
  if ((batching.default_priority_level < 1 || batching.default_priority_level > levels)) {
    Add(faults, "dynamic_batching.default_priority_level",
        StrCat("expected a level from 1 to ", levels, ", got ", batching.default_priority_level));
  }
  for (const auto& [level, policy] : batching.priority_queue_policy) {
    if (level >= 1 && level <= levels) continue;
    Add(faults, "dynamic_batching.priority_queue_policy",
        StrCat("expected a level from 1 to ", levels, ", got ", level));
  }
  ValidateOrdering(batching, faults);
}

void ValidateStep(const EnsembleStep& step, const std::string& key, Faults* faults) {
  if (step.model_name.empty()) Add(faults, key + ".model_name", "must not be empty");
  if (step.model_version < -1) {
    Add(faults, key + ".model_version",
        StrCat("expected a version, or -1 for the latest, got ", step.model_version));
  }
  if (step.output_map.empty()) Add(faults, key + ".output_map", "must not be empty");
}

void ValidateEnsemble(const ModelConfig& config, Faults* faults) {
  const bool platform = config.platform == "ensemble";
  if (!config.ensemble_scheduling.has_value()) {
    if (platform) {
      Add(faults, "platform", "'ensemble' needs ensemble_scheduling, which is not set");
    }
    return;
  }
  if (!platform) {
    Add(faults, "ensemble_scheduling",
        StrCat("expected platform 'ensemble', got '", config.platform, "'"));
  }
  if (!config.backend.empty()) {
    Add(faults, "backend", StrCat("expected none for an ensemble, got '", config.backend, "'"));
  }
  if (!config.instance_groups.empty()) {
    Add(faults, "instance_group", "cannot be given to an ensemble");
  }
  if (config.has_optimization) {
    Add(faults, "optimization", StrCat("should not be specified for ensemble '", config.name, "'"));
  }
  if (!config.warmups.empty()) {
    Add(faults, "model_warmup",
        StrCat("model_warmup can not be specified for ensemble '", config.name, "'"));
  }
  if (config.ensemble_scheduling->steps.empty()) {
    Add(faults, "ensemble_scheduling.step", "must have at least one step");
  }
  for (size_t i = 0; i < config.ensemble_scheduling->steps.size(); ++i) {
    ValidateStep(config.ensemble_scheduling->steps[i], StrCat("ensemble_scheduling.step[", i, "]"),
                 faults);
  }
}

// Names of labels as metrics pages have them.
void ValidateMetricTags(const ModelConfig& config, Faults* faults) {
  for (const auto& [tag, value] : config.metric_tags) {
    const bool is_name = std::all_of(tag.begin(), tag.end(), [](unsigned char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    });
    if (is_name) continue;
    Add(faults, "metric_tags", StrCat("expected keys of letters, digits and '_', got '", tag, "'"));
  }
}

void ValidateVersionPolicy(const VersionPolicy& policy, Faults* faults) {
  if (policy.kind == VersionPolicy::Kind::kLatest && policy.num_latest == 0) {
    Add(faults, "version_policy.latest.num_versions", "expected at least 1, got 0");
  }
  if (policy.kind != VersionPolicy::Kind::kSpecific) return;
  if (policy.specific.empty()) {
    Add(faults, "version_policy.specific.versions", "must name at least one version");
  }
}

}  // namespace

void ValidateModel(const ModelConfig& config, const std::string& folder_name, Faults* faults) {
  if (config.name != folder_name) {
    Add(faults, "name",
        StrCat("expected the folder's name '", folder_name, "', got '", config.name, "'"));
  }
  if (config.backend.empty() && config.runtime.empty() && !config.is_ensemble()) {
    Add(faults, "backend",
        config.platform.empty()
            ? StrCat("must specify 'platform' or 'backend' or 'runtime' for '", config.name, "'")
            : StrCat("must be set: platform '", config.platform, "' names no backend"));
  }
  if (config.max_batch_size < 0) {
    Add(faults, "max_batch_size",
        StrCat("must be non-negative value for ", config.name, ", got ", config.max_batch_size));
  }
  ValidateVersionPolicy(config.version_policy, faults);
  ValidateMetricTags(config, faults);
  ValidateDynamicBatching(config, faults);
  ValidateSequenceBatching(config, faults);
  ValidateEnsemble(config, faults);
}

void ValidateInstanceGroups(const ModelConfig& config, const std::vector<int32_t>& gpus,
                            Faults* faults) {
  for (size_t i = 0; i < config.instance_groups.size(); ++i) {
    const InstanceGroup& group = config.instance_groups[i];
    const std::string key = Concat("instance_group[", i, "]");
    if (group.kind == InstanceGroup::Kind::kGpu && group.gpus.empty()) {
      Add(faults, key + ".kind",
          StrCat("instance group ", group.name, " of model ", config.name,
                 " has kind KIND_GPU but no GPUs are available"));
    }
    if (group.kind != InstanceGroup::Kind::kGpu && !group.gpus.empty()) {
      Add(faults, key + ".gpus",
          StrCat("instance group ", group.name, " of model ", config.name, " has kind ",
                 group.kind == InstanceGroup::Kind::kCpu ? "KIND_CPU" : "KIND_MODEL",
                 " but specifies one or more GPUs"));
    }
    if (group.kind == InstanceGroup::Kind::kGpu) {
      for (const int32_t gpu : group.gpus) {
        if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) continue;
        Add(faults, key + ".gpus",
            StrCat("instance group ", group.name, " of model ", config.name,
                   " specifies invalid or unsupported gpu id ", gpu, ", of ", gpus.size(),
                   " usable GPUs"));
      }
    }
    if (!group.profiles.empty() && config.platform != "tensorrt_plan") {
      Add(faults, key + ".profile",
          StrCat("instance group ", group.name, " of model ", config.name, " and platform ",
                 config.platform,
                 " specifies profile field which is only supported for TensorRT models"));
    }
    constexpr int32_t kMaxInstances = 4096;
    if (group.count > kMaxInstances) {
      Add(faults, key + ".count",
          StrCat("expected at most ", kMaxInstances, ", got ", group.count));
    }
  }
}

}  // namespace nereid::config
