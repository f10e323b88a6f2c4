// Gathers the members, sorts them, writes them.
#include "host/frontend/http/calls/generate_reply.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "host/frontend/http/bodies/tensor_json.h"
#include "host/frontend/http/calls/infer_reply.h"
#include "host/frontend/http/json/json_writer.h"

namespace nereid::http {
namespace {

// Name to JSON value; of two members of one name the first stands.
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
    if (!HasJsonForm(output.datatype)) return status;  // in Triton's words
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

}  // namespace

Status AppendGenerateReply(std::string& json, const InferResponse& response) {
  NEREID_RETURN_IF_ERROR(response.Error());
  Members members;
  NEREID_RETURN_IF_ERROR(AddNames(response, members));
  NEREID_RETURN_IF_ERROR(AddParameters(response, members));
  NEREID_RETURN_IF_ERROR(AddOutputs(response, members));
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
  return Status::Ok();
}

}  // namespace nereid::http
