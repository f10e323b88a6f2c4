#include "host/core/config/typed_config.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "host/core/config/config_document.h"

namespace nereid::core::config {
namespace {

template <typename T>
void Take(const Json& json, const char* key, T* out) {
  if (const auto it = json.find(key); it != json.end()) *out = it->get<T>();
}

// Infinity and NaN are strings in JSON.
double Number(const Json& json) {
  if (json.is_number()) return json.get<double>();
  return std::strtod(json.get_ref<const std::string&>().c_str(), nullptr);
}

std::string GetString(const Json& json, const char* key) {
  return json.value(key, std::string());
}

DataType Type(const Json& json) {
  return DataTypeFromConfigName(GetString(json, "data_type"));
}

TensorConfig ToTensorSpec(const Json& json) {
  TensorConfig spec;
  Take(json, "name", &spec.name);
  spec.data_type = Type(json);
  Take(json, "dims", &spec.dims);
  if (json.contains("reshape")) {
    spec.reshape = json.at("reshape").at("shape").get<std::vector<int64_t>>();
  }
  Take(json, "is_shape_tensor", &spec.is_shape_tensor);
  Take(json, "is_non_linear_format_io", &spec.is_non_linear_format_io);
  Take(json, "allow_ragged_batch", &spec.allow_ragged_batch);
  Take(json, "optional", &spec.optional);
  Take(json, "format", &spec.format);
  Take(json, "label_filename", &spec.label_filename);
  return spec;
}

QueuePolicy ToQueuePolicy(const Json& json) {
  QueuePolicy policy;
  if (GetString(json, "timeout_action") == "DELAY") {
    policy.timeout_action = QueuePolicy::TimeoutAction::kDelay;
  }
  Take(json, "default_timeout_microseconds", &policy.default_timeout_us);
  Take(json, "allow_timeout_override", &policy.allow_timeout_override);
  Take(json, "max_queue_size", &policy.max_queue_size);
  return policy;
}

DynamicBatching ToDynamicBatching(const Json& json) {
  DynamicBatching batching;
  Take(json, "preferred_batch_size", &batching.preferred_batch_sizes);
  Take(json, "max_queue_delay_microseconds", &batching.max_queue_delay_us);
  Take(json, "preserve_ordering", &batching.preserve_ordering);
  Take(json, "priority_levels", &batching.priority_levels);
  Take(json, "default_priority_level", &batching.default_priority_level);
  if (json.contains("default_queue_policy")) {
    batching.default_queue_policy = ToQueuePolicy(json.at("default_queue_policy"));
  }
  for (const auto& [level, policy] : json.at("priority_queue_policy").items()) {
    batching.priority_queue_policy[std::stoull(level)] = ToQueuePolicy(policy);
  }
  return batching;
}

SequenceControl ToControl(const Json& json) {
  SequenceControl control;
  const std::string kind = GetString(json, "kind");
  control.kind = kind == "CONTROL_SEQUENCE_READY"    ? SequenceControl::Kind::kReady
                 : kind == "CONTROL_SEQUENCE_END"    ? SequenceControl::Kind::kEnd
                 : kind == "CONTROL_SEQUENCE_CORRID" ? SequenceControl::Kind::kCorrelationId
                                                     : SequenceControl::Kind::kStart;
  Take(json, "int32_false_true", &control.int32_false_true);
  for (const Json& value : json.value("fp32_false_true", Json::array())) {
    control.fp32_false_true.push_back(static_cast<float>(Number(value)));
  }
  Take(json, "bool_false_true", &control.bool_false_true);
  control.data_type = Type(json);
  return control;
}

SequenceStateConfig ToState(const Json& json) {
  SequenceStateConfig state;
  Take(json, "input_name", &state.input_name);
  Take(json, "output_name", &state.output_name);
  state.data_type = Type(json);
  Take(json, "dims", &state.dims);
  for (const Json& initial : json.at("initial_state")) {
    SequenceInitialState& out = state.initial_states.emplace_back();
    Take(initial, "name", &out.name);
    out.data_type = Type(initial);
    for (const Json& dim : initial.at("dims"))
      out.dims.push_back(std::stoll(dim.get<std::string>()));
    out.zero_data = initial.contains("zero_data");  // true even if the value is false
    Take(initial, "data_file", &out.data_file);
  }
  Take(json, "use_same_buffer_for_input_output", &state.use_same_buffer_for_input_output);
  Take(json, "use_growable_memory", &state.use_growable_memory);
  return state;
}

SequenceBatching ToSequenceBatching(const Json& json) {
  SequenceBatching batching;
  if (json.contains("oldest")) {
    SequenceOldest oldest;
    const Json& from = json.at("oldest");
    Take(from, "max_candidate_sequences", &oldest.max_candidate_sequences);
    Take(from, "preferred_batch_size", &oldest.preferred_batch_sizes);
    Take(from, "max_queue_delay_microseconds", &oldest.max_queue_delay_us);
    Take(from, "preserve_ordering", &oldest.preserve_ordering);
    batching.strategy = oldest;
  } else if (json.contains("direct")) {
    SequenceDirect direct;
    Take(json.at("direct"), "max_queue_delay_microseconds", &direct.max_queue_delay_us);
    direct.minimum_slot_utilization =
        static_cast<float>(Number(json.at("direct").at("minimum_slot_utilization")));
    batching.strategy = direct;
  }
  Take(json, "max_sequence_idle_microseconds", &batching.max_sequence_idle_us);
  for (const Json& input : json.at("control_input")) {
    SequenceControlInput& out = batching.control_inputs.emplace_back();
    Take(input, "name", &out.name);
    for (const Json& control : input.at("control")) out.controls.push_back(ToControl(control));
  }
  for (const Json& state : json.at("state")) batching.states.push_back(ToState(state));
  Take(json, "iterative_sequence", &batching.iterative_sequence);
  return batching;
}

EnsembleScheduling ToEnsemble(const Json& json) {
  EnsembleScheduling ensemble;
  Take(json, "max_inflight_requests", &ensemble.max_inflight_requests);
  for (const Json& step : json.at("step")) {
    EnsembleStep& out = ensemble.steps.emplace_back();
    Take(step, "model_name", &out.model_name);
    Take(step, "model_namespace", &out.model_namespace);
    Take(step, "model_version", &out.model_version);
    Take(step, "input_map", &out.input_map);
    Take(step, "output_map", &out.output_map);
  }
  return ensemble;
}

InstanceGroup ToInstanceGroup(const Json& json) {
  InstanceGroup group;
  Take(json, "name", &group.name);
  const std::string kind = GetString(json, "kind");
  group.kind = kind == "KIND_GPU"     ? InstanceGroup::Kind::kGpu
               : kind == "KIND_CPU"   ? InstanceGroup::Kind::kCpu
               : kind == "KIND_MODEL" ? InstanceGroup::Kind::kModel
                                      : InstanceGroup::Kind::kAuto;
  Take(json, "count", &group.count);
  Take(json, "gpus", &group.gpus);
  for (const Json& device : json.at("secondary_devices")) {
    group.secondary_devices.push_back(
        {GetString(device, "kind"), std::stoll(GetString(device, "device_id"))});
  }
  Take(json, "profile", &group.profiles);
  Take(json, "passive", &group.passive);
  Take(json, "host_policy", &group.host_policy);
  if (json.contains("rate_limiter")) {
    for (const Json& resource : json.at("rate_limiter").at("resources")) {
      group.rate_limiter_resources.push_back(
          {GetString(resource, "name"), resource.at("global"), resource.at("count")});
    }
    Take(json.at("rate_limiter"), "priority", &group.rate_limiter_priority);
  }
  return group;
}

VersionPolicy ToVersionPolicy(const Json& json) {
  VersionPolicy policy;
  policy.kind = VersionPolicy::Kind::kAll;  // also for an empty policy, as in Triton
  if (json.contains("specific")) {
    policy.kind = VersionPolicy::Kind::kSpecific;
    Take(json.at("specific"), "versions", &policy.specific);
  } else if (json.contains("latest")) {
    policy.kind = VersionPolicy::Kind::kLatest;
    Take(json.at("latest"), "num_versions", &policy.num_latest);
  }
  return policy;
}

Warmup ToWarmup(const Json& json) {
  Warmup warmup;
  Take(json, "name", &warmup.name);
  Take(json, "batch_size", &warmup.batch_size);
  Take(json, "count", &warmup.count);
  for (const auto& [name, input] : json.at("inputs").items()) {
    WarmupInput& out = warmup.inputs[name];
    out.data_type = Type(input);
    Take(input, "dims", &out.dims);
    out.source = WarmupInput::Source::kFile;  // with an empty name if none of the three is set
    if (input.contains("zero_data")) out.source = WarmupInput::Source::kZero;
    if (input.contains("random_data")) out.source = WarmupInput::Source::kRandom;
    if (input.contains("input_data_file")) {
      out.source = WarmupInput::Source::kFile;
      Take(input, "input_data_file", &out.file);
    }
  }
  return warmup;
}

void TakeSchedulers(const Json& json, ModelConfig* config) {
  if (json.contains("dynamic_batching")) {
    config->dynamic_batching = ToDynamicBatching(json.at("dynamic_batching"));
  }
  if (json.contains("sequence_batching")) {
    config->sequence_batching = ToSequenceBatching(json.at("sequence_batching"));
  }
  if (json.contains("ensemble_scheduling")) {
    config->ensemble_scheduling = ToEnsemble(json.at("ensemble_scheduling"));
  }
}

void TakeOptimization(const Json& json, ModelConfig* config) {
  config->has_optimization = json.contains("optimization");
  if (!config->has_optimization) return;
  const Json& optimization = json.at("optimization");
  Take(optimization, "eager_batching", &config->eager_batching);
  Take(optimization, "gather_kernel_buffer_threshold", &config->gather_kernel_buffer_threshold);
  if (optimization.contains("input_pinned_memory")) {
    Take(optimization.at("input_pinned_memory"), "enable", &config->input_pinned_memory);
  }
  if (optimization.contains("output_pinned_memory")) {
    Take(optimization.at("output_pinned_memory"), "enable", &config->output_pinned_memory);
  }
}

void TakePolicies(const Json& json, ModelConfig* config) {
  if (json.contains("model_transaction_policy")) {
    Take(json.at("model_transaction_policy"), "decoupled", &config->decoupled);
  }
  if (json.contains("response_cache")) {
    Take(json.at("response_cache"), "enable", &config->response_cache);
  }
  if (json.contains("model_repository_agents")) {
    for (const Json& agent : json.at("model_repository_agents").at("agents")) {
      RepositoryAgent& out = config->repository_agents.emplace_back();
      Take(agent, "name", &out.name);
      Take(agent, "parameters", &out.parameters);
    }
  }
  if (!json.contains("model_metrics")) return;
  for (const Json& control : json.at("model_metrics").at("metric_control")) {
    HistogramOverride& out = config->metric_overrides.emplace_back();
    if (control.contains("metric_identifier")) {
      Take(control.at("metric_identifier"), "family", &out.family);
    }
    if (control.contains("histogram_options")) {
      for (const Json& bound : control.at("histogram_options").value("buckets", Json::array())) {
        out.buckets.push_back(Number(bound));
      }
    }
  }
}

}  // namespace

std::vector<InstanceGroup> ToInstanceGroups(const Json& json) {
  std::vector<InstanceGroup> groups;
  for (const Json& group : json.at("instance_group")) groups.push_back(ToInstanceGroup(group));
  return groups;
}

ModelConfig ToModelConfig(Json json) {
  ModelConfig config;
  Take(json, "name", &config.name);
  Take(json, "platform", &config.platform);
  Take(json, "backend", &config.backend);
  Take(json, "runtime", &config.runtime);
  if (json.contains("version_policy")) {
    config.version_policy = ToVersionPolicy(json.at("version_policy"));
  }
  Take(json, "max_batch_size", &config.max_batch_size);
  for (const Json& input : json.at("input")) config.inputs.push_back(ToTensorSpec(input));
  for (const Json& output : json.at("output")) config.outputs.push_back(ToTensorSpec(output));
  TakeSchedulers(json, &config);
  config.instance_groups = ToInstanceGroups(json);
  Take(json, "default_model_filename", &config.default_model_filename);
  Take(json, "metric_tags", &config.metric_tags);
  for (const auto& [key, value] : json.at("parameters").items()) {
    config.parameters[key] = GetString(value, "string_value");
  }
  for (const Json& warmup : json.at("model_warmup")) config.warmups.push_back(ToWarmup(warmup));
  TakeOptimization(json, &config);
  TakePolicies(json, &config);
  config.document = std::make_shared<const ConfigDocument>(std::move(json));
  return config;
}

Json FromModelConfig(const ModelConfig& config) {
  return config.document == nullptr ? Json::object() : config.document->Tree();
}

}  // namespace nereid::core::config
