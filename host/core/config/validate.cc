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
  if (batching.preserve_ordering && config.decoupled) {
    Add(faults, "dynamic_batching.preserve_ordering",
        "a decoupled model has no order of responses to preserve");
  }
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

const char* KindName(SequenceControl::Kind kind) {
  switch (kind) {
    case SequenceControl::Kind::kStart:
      return "CONTROL_SEQUENCE_START";
    case SequenceControl::Kind::kReady:
      return "CONTROL_SEQUENCE_READY";
    case SequenceControl::Kind::kEnd:
      return "CONTROL_SEQUENCE_END";
    case SequenceControl::Kind::kCorrelationId:
      break;
  }
  return "CONTROL_SEQUENCE_CORRID";
}

void ValidateControl(const SequenceControl& control, const std::string& key, Faults* faults) {
  const std::initializer_list<std::pair<const char*, size_t>> lists = {
      {"int32_false_true", control.int32_false_true.size()},
      {"fp32_false_true", control.fp32_false_true.size()},
      {"bool_false_true", control.bool_false_true.size()}};
  if (control.kind == SequenceControl::Kind::kCorrelationId) {
    const auto type = control.data_type;
    if (type != DataType::kUint64 && type != DataType::kInt64 && type != DataType::kUint32 &&
        type != DataType::kInt32 && type != DataType::kBytes) {
      Add(faults, key + ".data_type",
          StrCat("expected TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 or TYPE_STRING for "
                 "CONTROL_SEQUENCE_CORRID, got ",
                 DataTypeName(type)));
    }
    for (const auto& [list, size] : lists) {
      if (size > 0) Add(faults, key, StrCat("CONTROL_SEQUENCE_CORRID takes no ", list));
    }
    return;
  }
  int num_lists = 0;
  for (const auto& [list, size] : lists) {
    if (size == 0) continue;
    ++num_lists;
    if (size != 2) {
      Add(faults, StrCat(key, ".", list),
          StrCat("expected exactly 2 entries for ", KindName(control.kind), ", got ", size));
    }
  }
  if (num_lists == 1) return;
  Add(faults, key,
      StrCat("expected one of int32_false_true, fp32_false_true and bool_false_true for ",
             KindName(control.kind), ", got ", num_lists));
}

void ValidateControls(const SequenceBatching& batching, Faults* faults) {
  std::set<SequenceControl::Kind> kinds;
  for (size_t i = 0; i < batching.control_inputs.size(); ++i) {
    const SequenceControlInput& input = batching.control_inputs[i];
    const std::string key = StrCat("sequence_batching.control_input[", i, "]");
    if (input.name.empty()) Add(faults, key + ".name", "must not be empty");
    if (input.controls.size() != 1) {
      Add(faults, key + ".control",
          StrCat("expected one control for '", input.name, "', got ", input.controls.size()));
    }
    for (const SequenceControl& control : input.controls) {
      ValidateControl(control, key + ".control[0]", faults);
      if (kinds.insert(control.kind).second) continue;
      Add(faults, key,
          StrCat("specifies a second ", KindName(control.kind), " tensor: '", input.name, "'"));
    }
  }
}

void ValidateInitialState(const SequenceState& state, const std::string& key, Faults* faults) {
  if (state.initial_states.empty()) return;
  if (state.initial_states.size() > 1) {
    Add(faults, key, StrCat("expected at most one, got ", state.initial_states.size()));
  }
  const SequenceInitialState& initial = state.initial_states.front();
  if (initial.name.empty()) {
    Add(faults, key + "[0].name", StrCat("must be set for state '", state.input_name, "'"));
  }
  if (initial.zero_data != initial.data_file.empty()) {
    Add(faults, key + "[0]",
        StrCat("expected either zero_data or data_file for state '", state.input_name, "'"));
  }
  if (initial.data_type != state.data_type) {
    Add(faults, key + "[0].data_type",
        StrCat("expected that of state '", state.input_name, "', ", DataTypeName(state.data_type),
               ", got ", DataTypeName(initial.data_type)));
  }
  bool same = initial.dims.size() == state.dims.size();
  for (size_t i = 0; same && i < initial.dims.size(); ++i) {
    same = initial.dims[i] >= 0 && (state.dims[i] < 0 || state.dims[i] == initial.dims[i]);
  }
  if (!same) {
    Add(faults, key + "[0].dims",
        StrCat("expected fixed sizes that agree with the dims of state '", state.input_name, "'"));
  }
}

void ValidateState(const SequenceState& state, const std::string& key, Faults* faults) {
  if (state.input_name.empty()) Add(faults, key + ".input_name", "must not be empty");
  if (state.output_name.empty()) Add(faults, key + ".output_name", "must not be empty");
  if (state.data_type == DataType::kInvalid) {
    Add(faults, key + ".data_type", StrCat("must be set for state '", state.input_name, "'"));
  }
  for (const int64_t dim : state.dims) {
    if (dim >= 1 || dim == -1) continue;
    Add(faults, key + ".dims",
        StrCat("expected dimensions >= 1, or -1 for a variable size, got ", dim));
  }
  if (state.use_growable_memory && !state.use_same_buffer_for_input_output) {
    Add(faults, key + ".use_growable_memory",
        StrCat("needs use_same_buffer_for_input_output for state '", state.input_name, "'"));
  }
  ValidateInitialState(state, key + ".initial_state", faults);
}

void ValidateSequenceBatching(const ModelConfig& config, Faults* faults) {
  if (!config.sequence_batching.has_value()) return;
  const SequenceBatching& batching = *config.sequence_batching;
  if (const auto* direct = std::get_if<SequenceDirect>(&batching.strategy)) {
    const float utilization = direct->minimum_slot_utilization;
    if (!(utilization >= 0 && utilization <= 1)) {
      Add(faults, "sequence_batching.direct.minimum_slot_utilization",
          StrCat("expected a share from 0 to 1, got ", utilization));
    }
  }
  if (const auto* oldest = std::get_if<SequenceOldest>(&batching.strategy);
      oldest != nullptr && oldest->preserve_ordering && config.decoupled) {
    Add(faults, "sequence_batching.oldest.preserve_ordering",
        "a decoupled model has no order of responses to preserve");
  }
  ValidateControls(batching, faults);
  for (size_t i = 0; i < batching.states.size(); ++i) {
    ValidateState(batching.states[i], StrCat("sequence_batching.state[", i, "]"), faults);
  }
  if (const auto* oldest = std::get_if<SequenceOldest>(&batching.strategy)) {
    ValidatePreferredSizes(oldest->preferred_batch_sizes, config.max_batch_size,
                           "sequence_batching.oldest.preferred_batch_size", faults);
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
  if ((tensor.format == "FORMAT_NHWC" || tensor.format == "FORMAT_NCHW") &&
      tensor.dims.size() != 3) {
    Add(faults, key + ".format",
        StrCat(tensor.format, " requires 3 dims, got ", ShapeText(tensor.dims)));
  }
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
