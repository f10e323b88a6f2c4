// A model's configuration as the core uses it: typed fields for scheduling, instances and
// validation, and the complete configuration as JSON for backends and clients. Created by
// config/config_loader.h and immutable afterwards. It does not depend on protobuf.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "nereid/data_type.h"

namespace nereid::core {

struct TensorConfig {
  std::string name;
  DataType data_type = DataType::kInvalid;
  std::vector<int64_t> dims;  // without the batch dimension; -1: variable
  // The shape that the backend sees instead of dims; may be empty.
  std::optional<std::vector<int64_t>> reshape;
  bool is_shape_tensor = false;
  bool is_non_linear_format_io = false;
  // Inputs only.
  bool allow_ragged_batch = false;
  bool optional = false;
  std::string format;  // "FORMAT_NONE" or another name of ModelInput::Format
  // Outputs only: a file with one class label per line, relative to the model's directory.
  std::string label_filename;
};

struct QueuePolicy {
  enum class TimeoutAction { kReject, kDelay };
  TimeoutAction timeout_action = TimeoutAction::kReject;
  uint64_t default_timeout_us = 0;  // 0: no timeout
  bool allow_timeout_override = false;
  uint32_t max_queue_size = 0;  // 0: no limit
};

struct DynamicBatching {
  std::vector<int32_t> preferred_batch_sizes;
  uint64_t max_queue_delay_us = 0;
  bool preserve_ordering = false;
  uint64_t priority_levels = 0;
  uint64_t default_priority_level = 0;
  QueuePolicy default_queue_policy;
  std::map<uint64_t, QueuePolicy> priority_queue_policy;
};

struct SequenceControl {
  enum class Kind { kStart, kReady, kEnd, kCorrelationId };
  Kind kind = Kind::kStart;
  std::vector<int32_t> int32_false_true;
  std::vector<float> fp32_false_true;
  std::vector<bool> bool_false_true;
  DataType data_type = DataType::kInvalid;
};

struct SequenceControlInput {
  std::string name;
  std::vector<SequenceControl> controls;
};

struct SequenceInitialState {
  std::string name;
  DataType data_type = DataType::kInvalid;
  std::vector<int64_t> dims;
  bool zero_data = false;
  std::string data_file;
};

struct SequenceStateConfig {
  std::string input_name;
  std::string output_name;
  DataType data_type = DataType::kInvalid;
  std::vector<int64_t> dims;
  std::vector<SequenceInitialState> initial_states;
  bool use_same_buffer_for_input_output = false;
  bool use_growable_memory = false;
};

struct SequenceDirect {
  uint64_t max_queue_delay_us = 0;
  float minimum_slot_utilization = 0;
};

struct SequenceOldest {
  int32_t max_candidate_sequences = 0;
  std::vector<int32_t> preferred_batch_sizes;
  uint64_t max_queue_delay_us = 0;
  bool preserve_ordering = false;
};

struct SequenceBatching {
  std::variant<SequenceDirect, SequenceOldest> strategy;
  uint64_t max_sequence_idle_us = 0;
  std::vector<SequenceControlInput> control_inputs;
  std::vector<SequenceStateConfig> states;
  bool iterative_sequence = false;
};

struct EnsembleStep {
  std::string model_name;
  std::string model_namespace;                    // repository of the model; empty: any
  int64_t model_version = -1;                     // -1: the latest ready version
  std::map<std::string, std::string> input_map;   // input of the step -> ensemble tensor
  std::map<std::string, std::string> output_map;  // output of the step -> ensemble tensor
};

struct EnsembleScheduling {
  std::vector<EnsembleStep> steps;
  uint32_t max_inflight_requests = 0;  // 0: no limit
};

struct InstanceGroup {
  enum class Kind { kAuto, kGpu, kCpu, kModel };
  struct SecondaryDevice {
    std::string kind;  // "KIND_NVDLA"
    int64_t device_id = 0;
  };
  struct Resource {
    std::string name;
    bool global = false;
    uint32_t count = 0;
    bool operator==(const Resource&) const = default;
  };
  std::string name;
  Kind kind = Kind::kAuto;  // not kAuto after normalization
  int32_t count = 0;        // >= 1 after normalization
  std::vector<int32_t> gpus;
  std::vector<SecondaryDevice> secondary_devices;
  std::vector<std::string> profiles;
  bool passive = false;
  std::string host_policy;
  std::vector<Resource> rate_limiter_resources;
  uint32_t rate_limiter_priority = 0;
};

struct VersionPolicy {
  enum class Kind { kLatest, kAll, kSpecific };
  Kind kind = Kind::kLatest;
  uint32_t num_latest = 1;
  std::vector<int64_t> specific;
};

struct WarmupInput {
  DataType data_type = DataType::kInvalid;
  std::vector<int64_t> dims;
  enum class Source { kZero, kRandom, kFile } source = Source::kZero;
  std::string file;  // relative to <model>/warmup/
};

struct Warmup {
  std::string name;
  uint32_t batch_size = 0;
  uint32_t count = 0;
  std::map<std::string, WarmupInput> inputs;
};

struct HistogramOverride {
  std::string family;
  std::vector<double> buckets;
};

struct RepositoryAgent {
  std::string name;
  std::map<std::string, std::string> parameters;
};

namespace config {
class ConfigDocument;
}

struct ModelConfig {
  std::string name;
  std::string platform;
  std::string backend;  // empty for ensembles
  std::string runtime;  // file name of the backend's shared library; empty: libtriton_<backend>.so
  VersionPolicy version_policy;
  int32_t max_batch_size = 0;  // 0: no batch dimension
  std::vector<TensorConfig> inputs;
  std::vector<TensorConfig> outputs;
  // At most one of these three is set.
  std::optional<DynamicBatching> dynamic_batching;
  std::optional<SequenceBatching> sequence_batching;
  std::optional<EnsembleScheduling> ensemble_scheduling;
  std::vector<InstanceGroup> instance_groups;
  std::string default_model_filename;
  std::map<std::string, std::string> metric_tags;
  std::map<std::string, std::string> parameters;
  std::vector<Warmup> warmups;
  bool decoupled = false;
  bool response_cache = false;
  bool has_optimization = false;
  bool eager_batching = false;
  bool input_pinned_memory = true;
  bool output_pinned_memory = true;
  uint32_t gather_kernel_buffer_threshold = 0;
  std::vector<HistogramOverride> metric_overrides;
  std::vector<RepositoryAgent> repository_agents;  // in the order in which they are called

  // The complete configuration, including fields without a member above. config::JsonText formats
  // it. Null if no text was read.
  std::shared_ptr<const config::ConfigDocument> document;

  bool is_ensemble() const { return ensemble_scheduling.has_value() || platform == "ensemble"; }
  // Null if there is no tensor of this name.
  const TensorConfig* FindInput(std::string_view tensor) const { return Find(inputs, tensor); }
  const TensorConfig* FindOutput(std::string_view tensor) const { return Find(outputs, tensor); }

 private:
  static const TensorConfig* Find(const std::vector<TensorConfig>& tensors, std::string_view name) {
    for (const TensorConfig& tensor : tensors) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
};

}  // namespace nereid::core
