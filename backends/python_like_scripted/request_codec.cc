#include "backends/python_like_scripted/request_codec.h"

#include <charconv>
#include <iterator>
#include <string>
#include <string_view>

#include "backends/python_like_scripted/tensor_codec.h"
#include "nereid/json.h"

namespace nereid::python {
namespace {

// The shortest text that parses to the same number and that Python reads as a float.
std::string DoubleText(double value) {
  char number[32];
  const char* const end = std::to_chars(std::begin(number), std::end(number), value).ptr;
  std::string text(number, static_cast<size_t>(end - number));
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

Result<std::string> ParametersText(const Request& request) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<ParameterView> parameters, request.Parameters());
  if (parameters.empty()) return std::string("{}");
  std::string text = "{";
  for (const ParameterView& parameter : parameters) {
    if (text.size() > 1) text += ',';
    text += Json(parameter.name).Dump() + ':';
    switch (parameter.type) {
      case TRITONSERVER_PARAMETER_STRING:
        text += Json(std::string(parameter.AsString())).Dump();
        break;
      case TRITONSERVER_PARAMETER_INT:
        text += std::to_string(parameter.AsInt());
        break;
      case TRITONSERVER_PARAMETER_BOOL:
        text += parameter.AsBool() ? "true" : "false";
        break;
      case TRITONSERVER_PARAMETER_DOUBLE:
        text += DoubleText(parameter.AsDouble());
        break;
      default:
        return UnsupportedError("parameter '", parameter.name, "': expected a string, an integer, ",
                                "a bool or a double, got type ", int{parameter.type});
    }
  }
  return text + '}';
}

}  // namespace

Status EncodeRequest(Request& request, uint64_t key, Worker& worker,
                     std::vector<SharedBlock>& blocks, MarshalWriter& writer) {
  writer.Tuple(8);
  writer.Uint(key);
  NEREID_ASSIGN_OR_RETURN(const std::string_view id, request.Id());
  writer.Text(id);
  if (const Result<uint64_t> number = request.CorrelationId(); number.ok()) {
    writer.Uint(*number);
  } else {
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, request.CorrelationIdString());
    writer.Text(text);
  }
  NEREID_ASSIGN_OR_RETURN(const uint32_t flags, request.Flags());
  writer.Int(flags);
  NEREID_ASSIGN_OR_RETURN(const uint64_t timeout_us, request.TimeoutUs());
  writer.Uint(timeout_us);
  NEREID_ASSIGN_OR_RETURN(const std::string parameters, ParametersText(request));
  writer.Text(parameters);
  NEREID_ASSIGN_OR_RETURN(const auto outputs, request.RequestedOutputs());
  writer.Tuple(static_cast<uint32_t>(outputs.size()));
  for (const std::string_view output : outputs) writer.Text(output);
  // Accepts inputs in GPU memory: WriteTensor copies them to the host if the model requires that.
  NEREID_ASSIGN_OR_RETURN(const std::vector<TensorView> inputs,
                          request.Inputs(TRITONSERVER_MEMORY_GPU));
  writer.Tuple(static_cast<uint32_t>(inputs.size()));
  for (const TensorView& input : inputs) {
    NEREID_RETURN_IF_ERROR(WriteTensor(input, worker.to_worker(), worker.posted_input_buffers(),
                                       worker.input_gpu(), blocks, writer));
  }
  return {};
}

}  // namespace nereid::python
