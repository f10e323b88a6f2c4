#include "host/core/config/validate.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/concat.h"
#include "host/core/config/typed_config.h"
#include "host/core/config/validate_parts.h"

namespace nereid::config {
namespace {

std::string List(const std::vector<int32_t>& numbers) {
  std::string text;
  for (const int32_t number : numbers) text += StrCat(text.empty() ? "" : ", ", number);
  return text.empty() ? "none" : text;
}

bool DelaysTimeouts(const QueuePolicy& policy) {
  return policy.default_timeout_us != 0 &&
         policy.timeout_action == QueuePolicy::TimeoutAction::kDelay;
}

// What may overtake would have to wait for what it has overtaken.
void ValidateOrdering(const DynamicBatching& batching, const std::string& model, Faults* faults) {
  if (!batching.preserve_ordering) return;
  if (batching.priority_levels > 1) {
    Add(faults, "dynamic_batching.priority_levels",
        StrCat("Only one priority level is allowed when 'preserve_ordering' is true for ", model,
               ", got ", batching.priority_levels));
  }
  const auto refuse = [&](const std::string& key) {
    Add(faults, key,
        StrCat("Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true "
               "for ",
               model));
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
  ValidatePreferredSizes(batching.preferred_batch_sizes, config, "dynamic batching preferred size",
                         "dynamic_batching.preferred_batch_size", faults);
  const uint64_t levels = batching.priority_levels;
  if (levels == 0) return ValidateOrdering(batching, config.name, faults);
  const std::string in_range = StrCat("level in range [1, ", levels, "] for ", config.name);
  if ((batching.default_priority_level < 1 || batching.default_priority_level > levels)) {
    Add(faults, "dynamic_batching.default_priority_level",
        StrCat("default priority level must be in range [1, ", levels, "] for ", config.name,
               ", got ", batching.default_priority_level));
  }
  for (const auto& [level, policy] : batching.priority_queue_policy) {
    if (level >= 1 && level <= levels) continue;
    Add(faults, "dynamic_batching.priority_queue_policy",
        StrCat("priority queue policy must have priority ", in_range, ", got ", level));
  }
  ValidateOrdering(batching, config.name, faults);
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

// Words of Triton's later versions, which have the field.
void ValidateMetrics(const ModelConfig& config, Faults* faults) {
  if (config.metric_overrides.empty()) return;
  const Json form = FromModelConfig(config);
  const Json& controls = form.at("model_metrics").at("metric_control");
  for (size_t i = 0; i < controls.size(); ++i) {
    const std::string key = StrCat("model_metrics.metric_control[", i, "]");
    if (!controls[i].contains("metric_identifier")) {
      Add(faults, key, "metric control must specify 'metric_identifier'");
    } else if (config.metric_overrides[i].family.empty()) {
      Add(faults, key + ".metric_identifier", "metric identifier must specify non-empty 'family'");
    }
    if (!controls[i].contains("histogram_options")) {
      Add(faults, key, "metric control must specify 'histogram_options'");
    } else if (config.metric_overrides[i].buckets.empty()) {
      Add(faults, key + ".histogram_options", "histogram options must specify non-empty 'buckets'");
    }
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

// The words are Triton's, for each of these as below.
void ValidateBackend(const ModelConfig& config, Faults* faults) {
  if (config.is_ensemble()) {
    if (config.backend.empty()) return;
    Add(faults, "backend",
        StrCat("Ensemble model '", config.name,
               "' must have platform type 'ensemble' and empty backend type, got '", config.backend,
               "'"));
  } else if (config.backend.empty() && config.runtime.empty()) {
    const bool has_nothing = config.platform.empty() && config.default_model_filename.empty();
    Add(faults, "backend",
        has_nothing
            ? StrCat("Invalid model name: Could not determine backend for model '", config.name,
                     "' with no backend in model configuration. Expected model name of the form "
                     "'model.<backend_name>'.")
            : StrCat("unexpected platform type '", config.platform, "' for ", config.name));
  }
}

}  // namespace

void ValidateModel(const ModelConfig& config, const std::string& folder_name, Faults* faults) {
  if (config.name != folder_name) {
    Add(faults, "name",
        StrCat("expected the folder's name '", folder_name, "', got '", config.name, "'"));
  }
  ValidateBackend(config, faults);
  if (config.max_batch_size < 0) {
    Add(faults, "max_batch_size",
        StrCat("'max_batch_size' must be non-negative value for ", config.name, ", got ",
               config.max_batch_size));
  }
  ValidateVersionPolicy(config.version_policy, faults);
  ValidateMetricTags(config, faults);
  ValidateMetrics(config, faults);
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
                   " specifies invalid or unsupported gpu id ", gpu,
                   ". GPUs with at least the minimum required CUDA compute compatibility are: ",
                   List(gpus)));
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
