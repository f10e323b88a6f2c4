// Validates inputs and outputs, and the fields batch_input and batch_output.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>

#include "base/concat.h"
#include "host/core/config/config_document.h"
#include "host/core/config/typed_config.h"
#include "host/core/config/validate.h"

namespace nereid::core::config {
namespace {

// -1 means a variable size.
void ValidateDims(const std::vector<int64_t>& dims, const std::string& what,
                  const std::string& model, const std::string& key, ConfigErrors* errors) {
  for (const int64_t dim : dims) {
    if (dim >= 1 || dim == -1) continue;
    AddError(errors, key,
             StrCat(what, " must be integer >= 1, or -1 to indicate a variable-size dimension for ",
                    model, ", got ", dim));
  }
}

// Whether a reshape keeps the number of elements: it must have the same number of variable
// dimensions, and equal products of the sizes between them.
bool SameElements(const std::vector<int64_t>& dims, const std::vector<int64_t>& shape) {
  const auto products = [](const std::vector<int64_t>& sizes) {
    std::vector<double> parts(1, 1.0);  // one product per run between variable dimensions
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

// The messages are Triton's, with the rejected values added.
void ValidateTensor(const TensorConfig& tensor, const char* list, const ModelConfig& config,
                    const std::string& key, ConfigErrors* errors) {
  const std::string what = Concat("model ", list, " '", tensor.name, "'");
  if (tensor.name.empty()) {
    AddError(errors, key + ".name",
             StrCat("model ", list, " must specify 'name' for ", config.name));
  }
  if (tensor.data_type == DataType::kInvalid) {
    AddError(errors, key + ".data_type",
             StrCat(what, " must specify 'data_type' for ", config.name));
  }
  if (tensor.dims.empty()) {
    AddError(errors, key + ".dims", StrCat(what, " must specify 'dims' for ", config.name));
  }
  ValidateDims(tensor.dims, what + " dimension", config.name, key + ".dims", errors);
  if ((tensor.format == "FORMAT_NHWC" || tensor.format == "FORMAT_NCHW") &&
      tensor.dims.size() != 3) {
    AddError(errors, key + ".format",
             StrCat("model input NHWC/NCHW require 3 dims for ", config.name, ": ", tensor.format,
                    ", got ", ShapeText(tensor.dims)));
  }
  if (config.platform != "tensorrt_plan") {
    if (tensor.is_shape_tensor) {
      AddError(errors, key + ".is_shape_tensor",
               StrCat("shape tensors are only supported for TensorRT platform for ", config.name));
    }
    if (tensor.is_non_linear_format_io) {
      AddError(errors, key + ".is_non_linear_format_io",
               StrCat("Non-linear IO format is only supported for the TensorRT platform for ",
                      config.name));
    }
  }
  if (!tensor.reshape.has_value()) return;
  const std::string shape_key = key + ".reshape.shape";
  ValidateDims(*tensor.reshape, what + " reshape dimensions", config.name, shape_key, errors);
  if (tensor.reshape->empty() && config.max_batch_size == 0) {
    AddError(errors, shape_key,
             StrCat(what,
                    " cannot have empty reshape for non-batching model as scalar tensors are not "
                    "supported for ",
                    config.name));
  } else if (!SameElements(tensor.dims, *tensor.reshape)) {
    const auto num_variable = [](const std::vector<int64_t>& shape) {
      return std::count(shape.begin(), shape.end(), -1);
    };
    const auto given = num_variable(tensor.dims), seen = num_variable(*tensor.reshape);
    const char* differs =
        given != seen && given > 0 && seen > 0 ? "number of variable-size dimensions" : "size";
    AddError(errors, shape_key,
             StrCat(what, " has different ", differs, " for dims and reshape for ", config.name,
                    ": ", ShapeText(tensor.dims), " and ", ShapeText(*tensor.reshape)));
  }
}

void ValidateTensorList(const std::vector<TensorConfig>& tensors, const char* list,
                        const ModelConfig& config, ConfigErrors* errors) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string key = Concat(list, "[", i, "]");
    ValidateTensor(tensors[i], list, config, key, errors);
    if (tensors[i].name.empty() || names.insert(tensors[i].name).second) continue;
    AddError(errors, key + ".name", StrCat("'", tensors[i].name, "' is given twice"));
  }
}

constexpr std::string_view kBatchInputKinds[] = {"BATCH_ELEMENT_COUNT",
                                                 "BATCH_ACCUMULATED_ELEMENT_COUNT",
                                                 "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
                                                 "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE",
                                                 "BATCH_ITEM_SHAPE",
                                                 "BATCH_ITEM_SHAPE_FLATTEN"};
constexpr std::string_view kBatchOutputKinds[] = {"BATCH_SCATTER_WITH_INPUT_SHAPE"};

// Validates a batch input, which the backend derives from the whole batch, or a batch output, which
// it splits accordingly. All kinds derive from one source input. `what`: "input" or "output".
void ValidateBatchSources(const ModelConfig& config, const Json& io,
                          std::span<const std::string_view> kinds, const char* what,
                          const std::string& key, ConfigErrors* errors) {
  const std::string kind = io.at("kind");
  const Json& sources = io.at("source_input");
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    AddError(errors, key + ".kind",
             StrCat("unknown batch ", what, " kind '", kind, "' for ", config.name));
  } else if (sources.size() != 1) {
    AddError(errors, key + ".source_input",
             StrCat("batch ", what, " kind '", kind, "' expects 1 source input, got ",
                    sources.size(), " for ", config.name));
  }
  for (const std::string name : sources) {
    if (config.FindInput(name) != nullptr) continue;
    AddError(errors, key + ".source_input",
             StrCat("unknown source input name '", name, "' for ", config.name));
  }
}

void ValidateBatchInput(const ModelConfig& config, const Json& io, const std::string& key,
                        ConfigErrors* errors) {
  ValidateBatchSources(config, io, kBatchInputKinds, "input", key, errors);
  const Json& type = io.at("data_type");
  if (type == "TYPE_INT32" || type == "TYPE_FP32") return;
  AddError(errors, key + ".data_type",
           StrCat("batch input data type must be TYPE_INT32 or TYPE_FP32 for ", config.name,
                  ", got ", type.get<std::string>()));
}

void ValidateBatchOutput(const ModelConfig& config, const Json& io, const std::string& key,
                         ConfigErrors* errors) {
  ValidateBatchSources(config, io, kBatchOutputKinds, "output", key, errors);
  std::set<std::string> names;
  for (const std::string name : io.at("target_name")) {
    if (config.FindOutput(name) == nullptr) {
      AddError(errors, key + ".target_name",
               StrCat("unknown target output name '", name, "' for ", config.name));
    }
    if (names.insert(name).second) continue;
    AddError(
        errors, key + ".target_name",
        StrCat("target output name '", name, "' can only be specified once for ", config.name));
  }
}

void ValidateBatchTensors(const ModelConfig& config, const Json& document, ConfigErrors* errors) {
  const Json none = Json::array();
  const Json& inputs = document.contains("batch_input") ? document.at("batch_input") : none;
  for (size_t i = 0; i < inputs.size(); ++i) {
    ValidateBatchInput(config, inputs[i], StrCat("batch_input[", i, "]"), errors);
  }
  const Json& outputs = document.contains("batch_output") ? document.at("batch_output") : none;
  for (size_t i = 0; i < outputs.size(); ++i) {
    ValidateBatchOutput(config, outputs[i], StrCat("batch_output[", i, "]"), errors);
  }
}

}  // namespace

void ValidateOutput(const ModelConfig& config, size_t index, ConfigErrors* errors) {
  ValidateTensor(config.outputs[index], "output", config, StrCat("output[", index, "]"), errors);
}

void ValidateTensors(const ModelConfig& config, ConfigErrors* errors) {
  ValidateTensorList(config.inputs, "input", config, errors);
  ValidateTensorList(config.outputs, "output", config, errors);
  const Json* const tree = config.document == nullptr ? nullptr : config.document->tree();
  if (tree != nullptr) return ValidateBatchTensors(config, *tree, errors);
  ValidateBatchTensors(config, FromModelConfig(config), errors);
}

}  // namespace nereid::core::config
