// The configuration of an ensemble and the parts of its steps' model configurations that it needs.
// The backend parses them at load, nereid-repo for its checks. Plain data. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nereid/status.h"

namespace nereid::ensemble {

struct TensorSpec {
  std::string name;
  std::string data_type;      // as in config.pbtxt: TYPE_FP32
  std::vector<int64_t> dims;  // without the batch dimension; -1 is variable
  bool optional = false;
};

struct ModelSpec {
  std::string name;
  int64_t max_batch_size = 0;  // > 0: requests have a leading batch dimension
  bool decoupled = false;
  bool is_complete = true;  // false: the backend adds the tensors later, so they are not checked
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;

  const TensorSpec* FindInput(std::string_view name) const;
  const TensorSpec* FindOutput(std::string_view name) const;
};

struct StepConfig {
  std::string model_name;
  int64_t model_version = -1;  // -1: the latest version that is served
  // The name in calls: with its repository as namespace, if the host gives one.
  std::string target;
  std::vector<std::pair<std::string, std::string>> input_map;   // model's input -> ensemble tensor
  std::vector<std::pair<std::string, std::string>> output_map;  // model's output -> ensemble tensor
};

struct EnsembleConfig {
  ModelSpec model;  // the ensemble's own tensors; dims as its steps see them, after a reshape
  std::vector<StepConfig> steps;
  uint64_t max_inflight_requests = 0;  // 0: not set
};

// Parses the JSON form of a model configuration. Errors name the field.
Result<ModelSpec> ParseModelSpec(std::string_view json);
Result<EnsembleConfig> ParseEnsembleConfig(std::string_view json);

// Returns the configuration with model_transaction_policy.decoupled set to `decoupled`.
Result<std::string> WithDecoupled(std::string_view json, bool decoupled);

}  // namespace nereid::ensemble
