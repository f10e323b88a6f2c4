// What a model expects of its requests, worked out once when it loads, so that checking a request
// walks small arrays and no configuration. Immutable. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/handle/data_type.h"
#include "host/core/request/tensor.h"
#include "nereid/status.h"

namespace nereid {

struct InputSpec {
  std::string name;
  DataType data_type = DataType::kInvalid;
  Shape dims;      // without the batch dimension; -1: any
  Shape expected;  // dims, with -1 in front when there is a batch dimension
  bool has_reshape = false;
  Shape reshape;  // without the batch dimension; may be empty
  bool optional = false;
  bool ragged = false;
  bool shape_tensor = false;
  bool any_byte_size = false;  // size and shape need not agree (non-linear formats)
};

struct OutputSpec {
  std::string name;
  DataType data_type = DataType::kInvalid;
  Shape dims;
  bool has_reshape = false;
  Shape reshape;
  std::vector<std::string> labels;  // class labels, by index
};

struct RequestPlan {
  RequestPlan() = default;
  // Moves keep the strings of both vectors in place, which the indices point into.
  RequestPlan(RequestPlan&&) = default;
  RequestPlan& operator=(RequestPlan&&) = default;

  // `model_dir` is where label files lie.
  static Result<RequestPlan> Make(const ModelConfig& config, int64_t version,
                                  const std::string& model_dir);

  // Index into inputs or outputs; -1 when there is none of that name.
  int FindInput(std::string_view name) const;
  int FindOutput(std::string_view name) const;

  std::string model_name;
  std::string model_namespace;  // the repository, where models of several may have one name
  int64_t model_version = 0;
  int64_t max_batch_size = 0;  // 0: no batch dimension
  bool decoupled = false;
  bool is_ensemble = false;
  bool iterative_sequence = false;  // a backend may release a request to have it again
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  size_t num_required_inputs = 0;
  // Inputs whose shapes may differ between two requests of a batch and must not (indices).
  std::vector<int> equal_shape_inputs;
  bool has_optional_inputs = false;
  uint64_t priority_levels = 0;
  uint64_t default_priority_level = 0;

 private:
  void BuildIndex();

  std::unordered_map<std::string_view, int> input_index_;   // keys point into inputs
  std::unordered_map<std::string_view, int> output_index_;  // keys point into outputs
};

}  // namespace nereid
