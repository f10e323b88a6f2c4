#include "host/core/request/request_text.h"

#include <algorithm>
#include <cstdio>

#include "host/core/handle/data_type.h"

namespace nereid {
namespace {

std::string ToText(const CorrelationId& id) {
  const auto* number = std::get_if<uint64_t>(&id);
  return number != nullptr ? std::to_string(*number) : std::get<std::string>(id);
}

std::string ToHex(uint32_t flags) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%x", flags);
  return text;
}

// "[1,16]": no spaces, unlike ShapeText.
std::string DimsText(std::span<const int64_t> dims) {
  std::string text = ShapeText(dims);
  std::erase(text, ' ');
  return text;
}

}  // namespace

std::string DescribeRequest(const InferRequest& request) {
  const RequestPlan& plan = request.plan();
  std::string text =
      StrCat("request id: ", request.id(), ", model: ", plan.model_name,
             ", requested version: ", request.requested_version(),
             ", actual version: ", plan.model_version, ", flags: ", ToHex(request.flags()),
             ", correlation id: ", ToText(request.correlation_id()),
             ", batch size: ", request.batch_size(), ", priority: ", request.priority(),
             ", timeout (us): ", request.timeout_us(), "\ninputs:\n");
  for (size_t i = 0; i < request.num_inputs(); ++i) {
    const InputTensor& input = request.input(i);
    text += StrCat("input: ", input.name, ", type: ", DataTypeName(input.data_type),
                   ", original shape: ", DimsText(input.client_shape),
                   ", shape: ", DimsText(input.shape), "\n");
  }
  text += "requested outputs:\n";
  for (size_t i = 0; i < request.num_outputs(); ++i) text += StrCat(request.output_name(i), "\n");
  return text;
}

}  // namespace nereid
