#include "config/validate.h"

#include <algorithm>
#include <set>

namespace nereid::config {
namespace {

void Add(Faults* faults, std::string key, std::string message) {
  faults->push_back({"", 0, 0, std::move(key), std::move(message)});
}

void ValidatePreferredSizes(const std::vector<int32_t>& sizes, int32_t max_batch_size,
                            const std::string& key, Faults* faults) {
  for (const int32_t size : sizes) {
    if (size <= 0) {
      Add(faults, key, StrCat("expected positive batch sizes, got ", size));
    } else if (size > max_batch_size) {
      Add(faults, key,
          StrCat("expected at most max_batch_size, which is ", max_batch_size, ", got ", size));
    }
  }
}

void ValidateDynamicBatching(const ModelConfig& config, Faults* faults) {
  if (!config.dynamic_batching.has_value()) return;
  const DynamicBatching& batching = *config.dynamic_batching;
  ValidatePreferredSizes(batching.preferred_batch_sizes, config.max_batch_size,
                         "dynamic_batching.preferred_batch_size", faults);
  const uint64_t levels = batching.priority_levels;
  if (levels > 0 &&
      (batching.default_priority_level < 1 || batching.default_priority_level > levels)) {
    Add(faults, "dynamic_batching.default_priority_level",
        StrCat("expected a level from 1 to ", levels, ", got ", batching.default_priority_level));
  }
  for (const auto& [level, policy] : batching.priority_queue_policy) {
    if (level >= 1 && level <= levels) continue;
    Add(faults, "dynamic_batching.priority_queue_policy",
        StrCat("expected a level from 1 to ", levels, ", got ", level));
  }
}

void ValidateSequenceBatching(const ModelConfig& config, Faults* faults) {
  if (!config.sequence_batching.has_value()) return;
  const SequenceBatching& batching = *config.sequence_batching;
  if (const auto* oldest = std::get_if<SequenceOldest>(&batching.strategy)) {
    ValidatePreferredSizes(oldest->preferred_batch_sizes, config.max_batch_size,
                           "sequence_batching.oldest.preferred_batch_size", faults);
  }
  for (size_t i = 0; i < batching.control_inputs.size(); ++i) {
    if (!batching.control_inputs[i].name.empty()) continue;
    Add(faults, StrCat("sequence_batching.control_input[", i, "].name"), "must not be empty");
  }
}

void ValidateStep(const EnsembleStep& step, const std::string& key, Faults* faults) {
  if (step.model_name.empty()) Add(faults, key + ".model_name", "must not be empty");
  if (step.model_version < -1 || step.model_version == 0) {
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
  if (config.ensemble_scheduling->steps.empty()) {
    Add(faults, "ensemble_scheduling.step", "must have at least one step");
  }
  for (size_t i = 0; i < config.ensemble_scheduling->steps.size(); ++i) {
    ValidateStep(config.ensemble_scheduling->steps[i], StrCat("ensemble_scheduling.step[", i, "]"),
                 faults);
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
  for (const int64_t version : policy.specific) {
    if (version >= 1) continue;
    Add(faults, "version_policy.specific.versions",
        StrCat("expected versions from 1, got ", version));
  }
}

// -1 stands for any size.
void ValidateDims(const std::vector<int64_t>& dims, const std::string& key, bool zero_allowed,
                  Faults* faults) {
  for (const int64_t dim : dims) {
    if (dim >= 1 || dim == -1 || (dim == 0 && zero_allowed)) continue;
    Add(faults, key, StrCat("expected dimensions >= 1, or -1 for a variable size, got ", dim));
  }
}

// A reshape keeps the elements: equal products, as many variable dimensions, in the same order.
bool SameElements(const std::vector<int64_t>& dims, const std::vector<int64_t>& shape) {
  const auto products = [](const std::vector<int64_t>& sizes) {
    std::vector<double> parts(1, 1.0);  // products between variable dimensions
    for (const int64_t size : sizes) {
      if (size == -1) {
        parts.push_back(1.0);
      } else {
        parts.back() *= static_cast<double>(size);
      }
    }
    return parts;
  };
  return products(dims) == products(shape);
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ",", shape[i]);
  return text + "]";
}

void ValidateTensor(const TensorSpec& tensor, int32_t max_batch_size, const std::string& key,
                    Faults* faults) {
  if (tensor.name.empty()) Add(faults, key + ".name", "must not be empty");
  if (tensor.data_type == DataType::kInvalid) {
    Add(faults, key + ".data_type", StrCat("must be set for '", tensor.name, "'"));
  }
  if (tensor.dims.empty()) {
    Add(faults, key + ".dims", StrCat("must be set for '", tensor.name, "'"));
  }
  ValidateDims(tensor.dims, key + ".dims", false, faults);
  if (!tensor.reshape.has_value()) return;
  ValidateDims(*tensor.reshape, key + ".reshape.shape", false, faults);
  if (tensor.reshape->empty() && max_batch_size == 0) {
    Add(faults, key + ".reshape.shape", "must not be empty where max_batch_size is 0");
  } else if (!SameElements(tensor.dims, *tensor.reshape)) {
    Add(faults, key + ".reshape.shape",
        StrCat("has another number of elements than dims ", ShapeText(tensor.dims), ": ",
               ShapeText(*tensor.reshape)));
  }
}

void ValidateTensorList(const std::vector<TensorSpec>& tensors, const char* list,
                        int32_t max_batch_size, Faults* faults) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string key = StrCat(list, "[", i, "]");
    ValidateTensor(tensors[i], max_batch_size, key, faults);
    if (tensors[i].name.empty() || names.insert(tensors[i].name).second) continue;
    Add(faults, key + ".name", StrCat("'", tensors[i].name, "' is given twice"));
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
  ValidateDynamicBatching(config, faults);
  ValidateSequenceBatching(config, faults);
  ValidateEnsemble(config, faults);
}

void ValidateTensors(const ModelConfig& config, Faults* faults) {
  ValidateTensorList(config.inputs, "input", config.max_batch_size, faults);
  ValidateTensorList(config.outputs, "output", config.max_batch_size, faults);
}

void ValidateInstanceGroups(const ModelConfig& config, const std::vector<int32_t>& gpus,
                            Faults* faults) {
  for (size_t i = 0; i < config.instance_groups.size(); ++i) {
    const InstanceGroup& group = config.instance_groups[i];
    const std::string key = StrCat("instance_group[", i, "]");
    if (group.kind == InstanceGroup::Kind::kGpu && group.gpus.empty()) {
      Add(faults, key + ".kind",
          StrCat("'", group.name, "' asks for KIND_GPU, but there is no GPU"));
    }
    if (group.kind != InstanceGroup::Kind::kGpu && !group.gpus.empty()) {
      Add(faults, key + ".gpus", StrCat("'", group.name, "' lists GPUs, but is not KIND_GPU"));
    }
    if (group.kind == InstanceGroup::Kind::kGpu) {
      for (const int32_t gpu : group.gpus) {
        if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) continue;
        Add(faults, key + ".gpus",
            StrCat("'", group.name, "' asks for GPU ", gpu, ", which is not usable"));
      }
    }
    if (group.kind == InstanceGroup::Kind::kCpu && group.passive) {
      Add(faults, key + ".passive", "a KIND_CPU instance cannot be passive");
    }
    constexpr int32_t kMaxInstances = 4096;
    if (group.count > kMaxInstances) {
      Add(faults, key + ".count",
          StrCat("expected at most ", kMaxInstances, ", got ", group.count));
    }
  }
}

}  // namespace nereid::config
