#include "host/core/request/request_schema.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include "base/file_content.h"

namespace nereid::core {
namespace {

Shape ExpectedShape(const TensorConfig& tensor, bool has_batch_dim) {
  Shape expected;
  if (has_batch_dim && !tensor.is_shape_tensor) expected.push_back(-1);
  expected.Append(tensor.dims);
  return expected;
}

InputSpec MakeInput(const TensorConfig& tensor, bool has_batch_dim) {
  InputSpec spec;
  spec.name = tensor.name;
  spec.data_type = tensor.data_type;
  spec.dims.Append(tensor.dims);
  spec.expected = ExpectedShape(tensor, has_batch_dim);
  spec.has_reshape = tensor.reshape.has_value();
  if (spec.has_reshape) spec.reshape.Append(*tensor.reshape);
  spec.optional = tensor.optional;
  spec.ragged = tensor.allow_ragged_batch;
  spec.shape_tensor = tensor.is_shape_tensor;
  spec.any_byte_size = tensor.is_non_linear_format_io;
  return spec;
}

// Reads the lines of a text file in the model's folder.
Result<std::vector<std::string>> ReadLabels(const std::string& model_dir, const std::string& name) {
  NEREID_ASSIGN_OR_RETURN(const std::string path, PathInside(model_dir, name));
  NEREID_ASSIGN_OR_RETURN(std::string content, ReadFile(path, kMaxTextFileBytes));
  std::istringstream text(std::move(content));
  std::vector<std::string> labels;
  for (std::string line; std::getline(text, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    labels.push_back(std::move(line));
  }
  return labels;
}

bool HasVariableDims(const Shape& dims) {
  return std::find(dims.begin(), dims.end(), -1) != dims.end();
}

}  // namespace

Result<RequestSchema> RequestSchema::Make(const ModelConfig& config, int64_t version,
                                          const std::string& model_dir) {
  RequestSchema schema;
  schema.model_name = config.name;
  schema.model_version = version;
  schema.max_batch_size = config.max_batch_size;
  schema.decoupled = config.decoupled;
  schema.is_ensemble = config.is_ensemble();
  schema.iterative_sequence =
      config.sequence_batching && config.sequence_batching->iterative_sequence;
  if (config.dynamic_batching) {
    schema.priority_levels = config.dynamic_batching->priority_levels;
    schema.default_priority_level = config.dynamic_batching->default_priority_level;
  } else if (schema.is_ensemble) {
    // An ensemble accepts any level, because the models of its steps check it.
    schema.priority_levels = std::numeric_limits<uint32_t>::max();
  }
  const bool has_batch_dim = config.max_batch_size > 0;
  for (const TensorConfig& tensor : config.inputs) {
    InputSpec spec = MakeInput(tensor, has_batch_dim);
    const int index = static_cast<int>(schema.inputs.size());
    if (spec.optional) {
      schema.has_optional_inputs = true;
    } else {
      ++schema.num_required_inputs;
    }
    if (!spec.ragged && (HasVariableDims(spec.dims) || spec.shape_tensor)) {
      schema.equal_shape_inputs.push_back(index);
    }
    schema.inputs.push_back(std::move(spec));
  }
  for (const TensorConfig& tensor : config.outputs) {
    OutputSpec spec;
    spec.name = tensor.name;
    spec.data_type = tensor.data_type;
    spec.dims.Append(tensor.dims);
    spec.has_reshape = tensor.reshape.has_value();
    if (spec.has_reshape) spec.reshape.Append(*tensor.reshape);
    if (!tensor.label_filename.empty()) {
      auto labels = ReadLabels(model_dir, tensor.label_filename);
      if (!labels.ok()) {
        return std::move(labels).status().WithContext(
            StrCat("label file of output '", tensor.name, "'"));
      }
      spec.labels = *std::move(labels);
    }
    schema.outputs.push_back(std::move(spec));
  }
  schema.BuildIndex();
  return schema;
}

void RequestSchema::BuildIndex() {
  for (size_t i = 0; i < inputs.size(); ++i) {
    input_index_.emplace(inputs[i].name, static_cast<int>(i));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    output_index_.emplace(outputs[i].name, static_cast<int>(i));
  }
}

int RequestSchema::FindInput(std::string_view name) const {
  const auto it = input_index_.find(name);
  return it == input_index_.end() ? -1 : it->second;
}

int RequestSchema::FindOutput(std::string_view name) const {
  const auto it = output_index_.find(name);
  return it == output_index_.end() ? -1 : it->second;
}

}  // namespace nereid::core
