#include "host/core/config/validate.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/concat.h"
#include "host/core/config/typed_config.h"

namespace nereid::core::config {
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

// preserve_ordering excludes priorities and delayed timeouts: a request that overtakes another one
// would have to wait for that other request's response.
void ValidateOrdering(const DynamicBatching& batching, const std::string& model,
                      ConfigErrors* errors) {
  if (!batching.preserve_ordering) return;
  if (batching.priority_levels > 1) {
    AddError(errors, "dynamic_batching.priority_levels",
             StrCat("Only one priority level is allowed when 'preserve_ordering' is true for ",
                    model, ", got ", batching.priority_levels));
  }
  const auto refuse = [&](const std::string& key) {
    AddError(
        errors, key,
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

void ValidateDynamicBatching(const ModelConfig& config, ConfigErrors* errors) {
  if (!config.dynamic_batching.has_value()) return;
  const DynamicBatching& batching = *config.dynamic_batching;
  ValidatePreferredSizes(batching.preferred_batch_sizes, config, "dynamic batching preferred size",
                         "dynamic_batching.preferred_batch_size", errors);
  const uint64_t levels = batching.priority_levels;
  if (levels == 0) return ValidateOrdering(batching, config.name, errors);
  const std::string in_range = StrCat("level in range [1, ", levels, "] for ", config.name);
  if ((batching.default_priority_level < 1 || batching.default_priority_level > levels)) {
    AddError(errors, "dynamic_batching.default_priority_level",
             StrCat("default priority level must be in range [1, ", levels, "] for ", config.name,
                    ", got ", batching.default_priority_level));
  }
  for (const auto& [level, policy] : batching.priority_queue_policy) {
    if (level >= 1 && level <= levels) continue;
    AddError(errors, "dynamic_batching.priority_queue_policy",
             StrCat("priority queue policy must have priority ", in_range, ", got ", level));
  }
  ValidateOrdering(batching, config.name, errors);
}

// The keys become label names in the metrics.
void ValidateMetricTags(const ModelConfig& config, ConfigErrors* errors) {
  for (const auto& [tag, value] : config.metric_tags) {
    const bool is_name = std::all_of(tag.begin(), tag.end(), [](unsigned char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    });
    if (is_name) continue;
    AddError(errors, "metric_tags",
             StrCat("expected keys of letters, digits and '_', got '", tag, "'"));
  }
}

// The messages are those of later Triton versions, which have this field.
void ValidateMetrics(const ModelConfig& config, ConfigErrors* errors) {
  if (config.metric_overrides.empty()) return;
  const Json document = FromModelConfig(config);
  const Json& controls = document.at("model_metrics").at("metric_control");
  for (size_t i = 0; i < controls.size(); ++i) {
    const std::string key = StrCat("model_metrics.metric_control[", i, "]");
    if (!controls[i].contains("metric_identifier")) {
      AddError(errors, key, "metric control must specify 'metric_identifier'");
    } else if (config.metric_overrides[i].family.empty()) {
      AddError(errors, key + ".metric_identifier",
               "metric identifier must specify non-empty 'family'");
    }
    if (!controls[i].contains("histogram_options")) {
      AddError(errors, key, "metric control must specify 'histogram_options'");
    } else if (config.metric_overrides[i].buckets.empty()) {
      AddError(errors, key + ".histogram_options",
               "histogram options must specify non-empty 'buckets'");
    }
  }
}

void ValidateVersionPolicy(const VersionPolicy& policy, ConfigErrors* errors) {
  if (policy.kind == VersionPolicy::Kind::kLatest && policy.num_latest == 0) {
    AddError(errors, "version_policy.latest.num_versions", "expected at least 1, got 0");
  }
  if (policy.kind != VersionPolicy::Kind::kSpecific) return;
  if (policy.specific.empty()) {
    AddError(errors, "version_policy.specific.versions", "must name at least one version");
  }
}

// Negative counts and ids, which no scheduler can honour. Others are reported where the field is
// used.
void ValidateSigns(const ModelConfig& config, ConfigErrors* errors) {
  const auto refuse = [&](const std::string& key, int64_t value) {
    AddError(errors, key, StrCat("expected 0 or more for ", config.name, ", got ", value));
  };
  for (size_t i = 0; i < config.instance_groups.size(); ++i) {
    const InstanceGroup& group = config.instance_groups[i];
    const std::string key = Concat("instance_group[", i, "]");
    if (group.count < 0) refuse(key + ".count", group.count);
    for (const int32_t gpu : group.gpus) {
      if (gpu < 0) refuse(key + ".gpus", gpu);
    }
    for (const auto& device : group.secondary_devices) {
      if (device.device_id < 0) refuse(key + ".secondary_devices", device.device_id);
    }
  }
}

// The model's files must lie in its folder. A backend appends this name to the folder's path.
void ValidateFileName(const std::string& name, const char* key, ConfigErrors* errors) {
  const std::filesystem::path path(name);
  if (!path.is_absolute() && std::find(path.begin(), path.end(), "..") == path.end()) return;
  AddError(errors, key, StrCat("expected a path inside of the version's folder, got '", name, "'"));
}

// The messages are Triton's.
void ValidateBackend(const ModelConfig& config, ConfigErrors* errors) {
  if (config.is_ensemble()) {
    if (config.backend.empty()) return;
    AddError(errors, "backend",
             StrCat("Ensemble model '", config.name,
                    "' must have platform type 'ensemble' and empty backend type, got '",
                    config.backend, "'"));
  } else if (config.backend.empty() && config.runtime.empty()) {
    const bool has_nothing = config.platform.empty() && config.default_model_filename.empty();
    AddError(
        errors, "backend",
        has_nothing
            ? StrCat("Invalid model name: Could not determine backend for model '", config.name,
                     "' with no backend in model configuration. Expected model name of the form "
                     "'model.<backend_name>'.")
            : StrCat("unexpected platform type '", config.platform, "' for ", config.name));
  }
}

}  // namespace

void AddError(ConfigErrors* errors, std::string key, std::string message) {
  errors->push_back({"", 0, 0, std::move(key), std::move(message)});
}

void ValidatePreferredSizes(const std::vector<int32_t>& sizes, const ModelConfig& config,
                            const char* what, const std::string& key, ConfigErrors* errors) {
  for (const int32_t size : sizes) {
    if (size <= 0) {
      AddError(errors, key, StrCat(what, " must be positive for ", config.name, ", got ", size));
    } else if (size > config.max_batch_size) {
      AddError(errors, key,
               StrCat(what, " must be <= max batch size for ", config.name, ", which is ",
                      config.max_batch_size, ", got ", size));
    }
  }
}

void ValidateModel(const ModelConfig& config, const std::string& folder_name,
                   ConfigErrors* errors) {
  if (config.name != folder_name) {
    AddError(errors, "name",
             StrCat("expected the folder's name '", folder_name, "', got '", config.name, "'"));
  }
  ValidateBackend(config, errors);
  if (config.max_batch_size < 0) {
    AddError(errors, "max_batch_size",
             StrCat("'max_batch_size' must be non-negative value for ", config.name, ", got ",
                    config.max_batch_size));
  }
  ValidateSigns(config, errors);
  ValidateFileName(config.default_model_filename, "default_model_filename", errors);
  ValidateVersionPolicy(config.version_policy, errors);
  ValidateMetricTags(config, errors);
  ValidateMetrics(config, errors);
  ValidateDynamicBatching(config, errors);
  ValidateSequenceBatching(config, errors);
  ValidateEnsemble(config, errors);
}

void ValidateInstanceGroups(const ModelConfig& config, const std::vector<int32_t>& gpus,
                            ConfigErrors* errors) {
  for (size_t i = 0; i < config.instance_groups.size(); ++i) {
    const InstanceGroup& group = config.instance_groups[i];
    const std::string key = Concat("instance_group[", i, "]");
    if (group.kind == InstanceGroup::Kind::kGpu && group.gpus.empty()) {
      AddError(errors, key + ".kind",
               StrCat("instance group ", group.name, " of model ", config.name,
                      " has kind KIND_GPU but no GPUs are available"));
    }
    if (group.kind != InstanceGroup::Kind::kGpu && !group.gpus.empty()) {
      AddError(errors, key + ".gpus",
               StrCat("instance group ", group.name, " of model ", config.name, " has kind ",
                      group.kind == InstanceGroup::Kind::kCpu ? "KIND_CPU" : "KIND_MODEL",
                      " but specifies one or more GPUs"));
    }
    if (group.kind == InstanceGroup::Kind::kGpu) {
      for (const int32_t gpu : group.gpus) {
        if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) continue;
        AddError(
            errors, key + ".gpus",
            StrCat("instance group ", group.name, " of model ", config.name,
                   " specifies invalid or unsupported gpu id ", gpu,
                   ". GPUs with at least the minimum required CUDA compute compatibility are: ",
                   List(gpus)));
      }
    }
    if (!group.profiles.empty() && config.platform != "tensorrt_plan") {
      AddError(errors, key + ".profile",
               StrCat("instance group ", group.name, " of model ", config.name, " and platform ",
                      config.platform,
                      " specifies profile field which is only supported for TensorRT models"));
    }
    constexpr int32_t kMaxInstances = 4096;
    if (group.count > kMaxInstances) {
      AddError(errors, key + ".count",
               StrCat("expected at most ", kMaxInstances, ", got ", group.count));
    }
  }
}

}  // namespace nereid::core::config
