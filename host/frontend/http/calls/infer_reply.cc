// The members of the answer, in Triton's order.
#include "host/frontend/http/calls/infer_reply.h"

#include <cmath>

#include "base/inline_vector.h"
#include "host/frontend/classification.h"
#include "host/frontend/http/bodies/data_type.h"
#include "host/frontend/http/bodies/tensor_json.h"
#include "host/frontend/http/json/json_writer.h"

namespace nereid::http {
namespace {

constexpr size_t kUsualBytes = 512;  // most replies without their tensors

Status AppendParameters(std::string& json, const InferResponse& response) {
  NEREID_ASSIGN_OR_RETURN(const uint32_t count, response.ParameterCount());
  if (count == 0) return Status::Ok();
  InlineVector<std::string_view, 8> seen;
  json += ",\"parameters\":{";
  for (uint32_t i = 0; i < count; ++i) {
    NEREID_ASSIGN_OR_RETURN(const ParameterView parameter, response.Parameter(i));
    bool is_repeated = false;
    for (const std::string_view name : seen) is_repeated = is_repeated || name == parameter.name;
    if (is_repeated) continue;  // a model may set one twice, a JSON object may not hold it twice
    if (!seen.empty()) json += ',';
    seen.push_back(parameter.name);
    AppendLossyJsonString(json, parameter.name);
    json += ':';
    AppendParameterValue(json, parameter);
  }
  json += '}';
  return Status::Ok();
}

// An output as it goes out: the model's, or the classes that were made of it.
struct OutputTensor {
  std::string_view name;
  TRITONSERVER_DataType datatype;
  InlineVector<int64_t, 6> shape;
  std::string_view data;
};

Result<OutputTensor> TakeOutput(const InferResponse& response, uint32_t index,
                                const OutputForms& forms, InferReply& reply) {
  NEREID_ASSIGN_OR_RETURN(const OutputView output, response.Output(index));
  const OutputRequest* const request = forms.Find(output.name);
  if (request == nullptr || request->num_classes == 0) {
    return OutputTensor{output.name,
                        output.datatype,
                        InlineVector<int64_t, 6>(output.shape),
                        {static_cast<const char*>(output.base), output.size_bytes}};
  }
  Result<Classes> classes =
      Classify(response, index, output, forms.is_batched, request->num_classes);
  if (!classes.ok()) return std::move(classes).status();
  const std::string& data = reply.made.emplace_back(std::move(classes->data));
  return OutputTensor{output.name, TRITONSERVER_TYPE_BYTES,
                      InlineVector<int64_t, 6>(classes->shape), data};
}

Status AppendOutput(InferReply& reply, const OutputTensor& output, OutputForm form) {
  std::string& json = reply.json;
  json += "{\"name\":";
  AppendLossyJsonString(json, output.name);
  json += ",\"datatype\":\"";
  json += DataTypeName(output.datatype);
  json += "\",\"shape\":[";
  for (size_t i = 0; i < output.shape.size(); ++i) {
    if (i != 0) json += ',';
    AppendJsonInt(json, output.shape[i]);
  }
  if (form == OutputForm::kElsewhere) {
    json += "]}";
    return Status::Ok();
  }
  const std::string_view data = output.data;
  if (form == OutputForm::kBinary) {
    json += "],\"parameters\":{\"binary_data_size\":";
    AppendJsonUint(json, data.size());
    json += "}}";
    reply.blocks.push_back(data);
    return Status::Ok();
  }
  json += "],\"data\":[";
  size_t num_elements = 0;
  Status status =
      AppendJsonElements(json, output.datatype, data, TextPolicy::kRefuse, num_elements);
  json += "]}";
  if (!HasJsonForm(output.datatype)) return status;  // in Triton's words
  return std::move(status).WithContext(StrCat("output '", output.name, "'"));
}

}  // namespace

OutputForm OutputForms::FormOf(std::string_view output) const {
  if (FindShared(shared, output) != nullptr) return OutputForm::kElsewhere;
  const OutputRequest* const request = Find(output);
  const bool is_binary = request == nullptr ? binary_by_default : request->is_binary;
  return is_binary ? OutputForm::kBinary : OutputForm::kJson;
}

const OutputRequest* OutputForms::Find(std::string_view output) const {
  for (const OutputRequest& request : named) {
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

Status BuildInferReply(const InferResponse& response, const OutputForms& forms, InferReply& reply) {
  NEREID_ASSIGN_OR_RETURN(const InferResponse::ModelId model, response.Model());
  NEREID_ASSIGN_OR_RETURN(const std::string_view id, response.RequestId());
  std::string& json = reply.json;
  json.reserve(kUsualBytes);
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
    NEREID_ASSIGN_OR_RETURN(const OutputTensor output, TakeOutput(response, i, forms, reply));
    if (i != 0) json += ',';
    NEREID_RETURN_IF_ERROR(AppendOutput(reply, output, forms.FormOf(output.name)));
  }
  json += "]}";
  return Status::Ok();
}

}  // namespace nereid::http
