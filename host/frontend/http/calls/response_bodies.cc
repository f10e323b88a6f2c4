// infer writes the members in Triton's order; generate collects and sorts them.
#include "host/frontend/http/calls/response_bodies.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/inline_vector.h"
#include "host/frontend/classification.h"
#include "host/frontend/http/bodies/data_type.h"
#include "host/frontend/http/bodies/tensor_json.h"
#include "host/frontend/http/json/json_writer.h"

namespace nereid::http {
namespace {

constexpr size_t kTypicalJsonBytes = 512;  // sufficient for most bodies without their tensors

Status AppendParameters(std::string& json, const InferResponse& response) {
  NEREID_ASSIGN_OR_RETURN(const uint32_t count, response.ParameterCount());
  if (count == 0) return Status::Ok();
  InlineVector<std::string_view, 8> seen;
  json += ",\"parameters\":{";
  for (uint32_t i = 0; i < count; ++i) {
    NEREID_ASSIGN_OR_RETURN(const ParameterView parameter, response.Parameter(i));
    bool is_repeated = false;
    for (const std::string_view name : seen) is_repeated = is_repeated || name == parameter.name;
    if (is_repeated) continue;  // a model may set one twice, but a JSON object must not repeat it
    if (!seen.empty()) json += ',';
    seen.push_back(parameter.name);
    AppendLossyJsonString(json, parameter.name);
    json += ':';
    AppendParameterValue(json, parameter);
  }
  json += '}';
  return Status::Ok();
}

// An output to send: the model's tensor, or the classification result derived from it.
struct OutputTensor {
  std::string_view name;
  TRITONSERVER_DataType datatype;
  InlineVector<int64_t, 6> shape;
  std::string_view data;
};

Result<OutputTensor> ConvertOutput(const InferResponse& response, uint32_t index,
                                   const OutputFormats& formats, InferResponseBody& body) {
  NEREID_ASSIGN_OR_RETURN(const OutputView output, response.Output(index));
  const RequestedOutput* const request = formats.Find(output.name);
  if (request == nullptr || request->num_classes == 0) {
    return OutputTensor{output.name,
                        output.datatype,
                        InlineVector<int64_t, 6>(output.shape),
                        {static_cast<const char*>(output.base), output.size_bytes}};
  }
  Result<ClassificationOutput> classes =
      Classify(response, index, output, formats.is_batched, request->num_classes);
  if (!classes.ok()) return std::move(classes).status();
  const std::string& data = body.derived_tensors.emplace_back(std::move(classes->data));
  return OutputTensor{output.name, TRITONSERVER_TYPE_BYTES,
                      InlineVector<int64_t, 6>(classes->shape), data};
}

Status AppendOutput(InferResponseBody& body, const OutputTensor& output, OutputFormat form) {
  std::string& json = body.json;
  json += "{\"name\":";
  AppendLossyJsonString(json, output.name);
  json += ",\"datatype\":\"";
  json += DataTypeName(output.datatype);
  json += "\",\"shape\":[";
  for (size_t i = 0; i < output.shape.size(); ++i) {
    if (i != 0) json += ',';
    AppendJsonInt(json, output.shape[i]);
  }
  if (form == OutputFormat::kSharedMemory) {
    json += "]}";
    return Status::Ok();
  }
  const std::string_view data = output.data;
  if (form == OutputFormat::kBinary) {
    json += "],\"parameters\":{\"binary_data_size\":";
    AppendJsonUint(json, data.size());
    json += "}}";
    body.tensors.push_back(data);
    return Status::Ok();
  }
  json += "],\"data\":[";
  size_t num_elements = 0;
  Status status =
      AppendJsonElements(json, output.datatype, data, TextPolicy::kRefuse, num_elements);
  json += "]}";
  if (!SupportsJson(output.datatype)) return status;  // Triton's message
  return std::move(status).WithContext(StrCat("output '", output.name, "'"));
}

// Name and JSON value. Of two members with the same name the first is written.
using Members = std::vector<std::pair<std::string_view, std::string>>;

Status AddOutputs(const InferResponse& response, Members& members) {
  NEREID_ASSIGN_OR_RETURN(const uint32_t count, response.OutputCount());
  for (uint32_t i = 0; i < count; ++i) {
    NEREID_ASSIGN_OR_RETURN(const OutputView output, response.Output(i));
    const std::string_view data(static_cast<const char*>(output.base), output.size_bytes);
    std::string value;
    size_t num_elements = 0;
    Status status =
        AppendJsonElements(value, output.datatype, data, TextPolicy::kReplace, num_elements);
    if (!SupportsJson(output.datatype)) return status;  // Triton's message
    if (!status.ok()) return std::move(status).WithContext(StrCat("output '", output.name, "'"));
    if (num_elements != 1) value = "[" + value + "]";
    members.emplace_back(output.name, std::move(value));
  }
  return Status::Ok();
}

Status AddParameters(const InferResponse& response, Members& members) {
  NEREID_ASSIGN_OR_RETURN(const uint32_t count, response.ParameterCount());
  for (uint32_t i = 0; i < count; ++i) {
    NEREID_ASSIGN_OR_RETURN(const ParameterView parameter, response.Parameter(i));
    std::string value;
    AppendParameterValue(value, parameter);
    members.emplace_back(parameter.name, std::move(value));
  }
  return Status::Ok();
}

Status AddNames(const InferResponse& response, Members& members) {
  NEREID_ASSIGN_OR_RETURN(const InferResponse::ModelId model, response.Model());
  NEREID_ASSIGN_OR_RETURN(const std::string_view id, response.RequestId());
  const auto add_text = [&](std::string_view name, std::string_view text) {
    std::string value;
    AppendLossyJsonString(value, text);
    members.emplace_back(name, std::move(value));
  };
  if (!id.empty()) add_text("id", id);
  add_text("model_name", model.name);
  add_text("model_version", std::to_string(model.version));
  return Status::Ok();
}

// Sorted by name. Of several members of one name, the first one counts.
void AppendMembers(std::string& json, Members& members) {
  std::stable_sort(members.begin(), members.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto end = std::unique(members.begin(), members.end(),
                               [](const auto& a, const auto& b) { return a.first == b.first; });
  char separator = '{';
  for (auto member = members.begin(); member != end; ++member) {
    json += separator;
    separator = ',';
    AppendLossyJsonString(json, member->first);
    json += ':';
    json += member->second;
  }
  json += '}';
}

}  // namespace

OutputFormat OutputFormats::FormatOf(std::string_view output) const {
  if (FindShared(shared, output) != nullptr) return OutputFormat::kSharedMemory;
  const RequestedOutput* const request = Find(output);
  const bool is_binary = request == nullptr ? binary_by_default : request->is_binary;
  return is_binary ? OutputFormat::kBinary : OutputFormat::kJson;
}

const RequestedOutput* OutputFormats::Find(std::string_view output) const {
  for (const RequestedOutput& request : named) {
    if (request.name == output) return &request;
  }
  return nullptr;
}

void AppendParameterValue(std::string& json, const ParameterView& parameter) {
  switch (parameter.type) {
    case TRITONSERVER_PARAMETER_STRING:
      AppendLossyJsonString(json, parameter.AsString());
      break;
    case TRITONSERVER_PARAMETER_INT:
      AppendJsonInt(json, parameter.AsInt());
      break;
    case TRITONSERVER_PARAMETER_BOOL:
      json += parameter.AsBool() ? "true" : "false";
      break;
    case TRITONSERVER_PARAMETER_DOUBLE:
      if (std::isfinite(parameter.AsDouble())) {
        AppendJsonDouble(json, parameter.AsDouble());
        break;
      }
      [[fallthrough]];
    default:
      json += "null";
  }
}

Status BuildInferResponseBody(const InferResponse& response, const OutputFormats& formats,
                              InferResponseBody& body) {
  NEREID_ASSIGN_OR_RETURN(const InferResponse::ModelId model, response.Model());
  NEREID_ASSIGN_OR_RETURN(const std::string_view id, response.RequestId());
  std::string& json = body.json;
  json.reserve(kTypicalJsonBytes);
  json += '{';
  if (!id.empty()) {
    json += "\"id\":";
    AppendLossyJsonString(json, id);
    json += ',';
  }
  json += "\"model_name\":";
  AppendLossyJsonString(json, model.name);
  json += ",\"model_version\":\"";
  AppendJsonInt(json, model.version);
  json += '"';
  NEREID_RETURN_IF_ERROR(AppendParameters(json, response));

  NEREID_ASSIGN_OR_RETURN(const uint32_t count, response.OutputCount());
  json += ",\"outputs\":[";
  for (uint32_t i = 0; i < count; ++i) {
    NEREID_ASSIGN_OR_RETURN(const OutputTensor output, ConvertOutput(response, i, formats, body));
    if (i != 0) json += ',';
    NEREID_RETURN_IF_ERROR(AppendOutput(body, output, formats.FormatOf(output.name)));
  }
  json += "]}";
  return Status::Ok();
}

Status AppendGenerateResponse(std::string& json, const InferResponse& response) {
  NEREID_RETURN_IF_ERROR(response.Error());
  Members members;
  NEREID_RETURN_IF_ERROR(AddNames(response, members));
  NEREID_RETURN_IF_ERROR(AddParameters(response, members));
  NEREID_RETURN_IF_ERROR(AddOutputs(response, members));
  AppendMembers(json, members);
  return Status::Ok();
}

Status AppendGenerateResponses(std::string& json, std::span<const InferResponse> responses) {
  std::map<std::string, std::string, std::less<>> elements;  // of each output
  for (const InferResponse& response : responses) {
    NEREID_RETURN_IF_ERROR(response.Error());
    Members outputs;
    NEREID_RETURN_IF_ERROR(AddOutputs(response, outputs));
    for (const auto& [name, value] : outputs) {
      const bool is_array = value.starts_with('[');
      const std::string_view text =
          is_array ? std::string_view(value).substr(1, value.size() - 2) : value;
      std::string& all = elements[std::string(name)];
      if (!all.empty() && !text.empty()) all += ',';
      all += text;
    }
  }
  Members members;
  NEREID_RETURN_IF_ERROR(AddNames(responses.front(), members));
  NEREID_RETURN_IF_ERROR(AddParameters(responses.front(), members));
  for (const auto& [name, all] : elements) members.emplace_back(name, StrCat('[', all, ']'));
  AppendMembers(json, members);
  return Status::Ok();
}

}  // namespace nereid::http
