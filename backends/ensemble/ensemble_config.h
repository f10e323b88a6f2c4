// What an ensemble's configuration says, and what it needs to know of each step's model. Read by
// the backend at load and by nereid-repo; plain data without behaviour. [any thread]
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
  int64_t max_batch_size = 0;  // > 0: requests carry a leading batch dimension
  bool decoupled = false;
  bool is_complete = true;  // false: its backend names the tensors later; they are not checked
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;

  const TensorSpec* FindInput(std::string_view name) const;
  const TensorSpec* FindOutput(std::string_view name) const;
};

struct StepConfig {
  std::string model_name;
  int64_t model_version = -1;  // -1: the latest that is served
  std::string target;  // the name to call it by: with its repository, where the host says which
  std::vector<std::pair<std::string, std::string>> input_map;   // model's input -> ensemble tensor
  std::vector<std::pair<std::string, std::string>> output_map;  // model's output -> ensemble tensor
};

struct EnsembleConfig {
  ModelSpec model;  // the ensemble's own declaration; dims as its steps see them, behind a reshape
  std::vector<StepConfig> steps;
  uint64_t max_inflight_requests = 0;  // 0: not set
};

// From the JSON form of a model configuration. Errors name the field.
Result<ModelSpec> ParseModelSpec(std::string_view json);
Result<EnsembleConfig> ParseEnsembleConfig(std::string_view json);

// The same configuration with that in model_transaction_policy.
Result<std::string> WithDecoupled(std::string_view json, bool decoupled);

}  // namespace nereid::ensemble
