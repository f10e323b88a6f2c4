// See answers.h.
#include "tests/support/backends/golden/answers.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/backends/golden/python_text.h"

namespace nereid::golden {

namespace {

Status CopyTensor(Request& request, const TensorView& input, const char* output) {
  NEREID_ASSIGN_OR_RETURN(Response * response, request.TheResponse());
  NEREID_ASSIGN_OR_RETURN(
      const std::span<std::byte> target,
      response->OutputBytes(output, input.datatype(), input.shape(), input.size_bytes()));
  return input.CopyTo(target);
}

// What an exception inside execute makes of every request of the call.
Status Raised(Request& request, std::string_view error, int line) {
  const InstanceContext& instance = request.sender().instance();
  return InternalError("Failed to process the request(s) for model '", instance.name(),
                       "', message: ", Traceback(instance.model(), error, line, "execute"));
}

}  // namespace

Status CopyInput(Request& request, const char* input, const char* output) {
  NEREID_ASSIGN_OR_RETURN(const TensorView view, request.Input(input));
  return CopyTensor(request, view, output);
}

Status Linear(Request& request, float factor, float offset) {
  NEREID_ASSIGN_OR_RETURN(TensorView input, request.Input("IN"));
  NEREID_ASSIGN_OR_RETURN(const std::span<const float> in, input.As<float>());
  NEREID_ASSIGN_OR_RETURN(const std::span<float> out, request.Output<float>("OUT", input.shape()));
  std::transform(in.begin(), in.end(), out.begin(),
                 [&](float value) { return value * factor + offset; });
  return {};
}

Status CopyEachType(Request& request) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<TensorView> inputs, request.Inputs());
  for (const TensorView& input : inputs) {
    const std::string output = StrCat("O_", std::string_view(input.name()).substr(2));
    NEREID_RETURN_IF_ERROR(CopyTensor(request, input, output.c_str()));
  }
  (void)request.TheResponse();  // also when there was no input
  return {};
}

Status FailAsTold(Request& request) {
  NEREID_ASSIGN_OR_RETURN(TensorView input, request.Input("INPUT0"));
  NEREID_ASSIGN_OR_RETURN(const int32_t value, input.Scalar<int32_t>());
  if (value == 1) return Raised(request, "RuntimeError: boom from execute", 10);
  constexpr StatusCode kCodes[] = {StatusCode::kUnknown,       StatusCode::kInternal,
                                   StatusCode::kNotFound,      StatusCode::kInvalidArg,
                                   StatusCode::kUnavailable,   StatusCode::kUnsupported,
                                   StatusCode::kAlreadyExists, StatusCode::kCancelled};
  const StatusCode code = value >= 2 && value <= 9 ? kCodes[value - 2] : StatusCode::kInternal;
  return request.Fail(Status(code, StrCat("error ", value)));
}

Status DescribeRequest(Request& request) {
  NEREID_ASSIGN_OR_RETURN(const std::string parameters,
                          ParametersJson(request, Spacing::kJsonDumps));
  NEREID_ASSIGN_OR_RETURN(const std::string_view id, request.Id());
  NEREID_ASSIGN_OR_RETURN(const uint32_t flags, request.Flags());
  NEREID_ASSIGN_OR_RETURN(const uint64_t timeout_us, request.TimeoutUs());
  const Result<uint64_t> number = request.CorrelationId();
  const Result<std::string_view> text = request.CorrelationIdString();
  const std::string correlation_id = number.ok() ? std::to_string(*number)
                                     : text.ok() ? Quoted(*text)
                                                 : "null";
  NEREID_ASSIGN_OR_RETURN(std::vector<std::string_view> outputs, request.RequestedOutputs());
  std::sort(outputs.begin(), outputs.end());
  std::string names;
  for (const std::string_view name : outputs) names += (names.empty() ? "" : ", ") + Quoted(name);
  const std::string description = StrCat(
      "{\"parameters\": ", parameters, ", \"id\": ", Quoted(id), ", \"corr\": ", correlation_id,
      ", \"flags\": ", flags, ", \"timeout\": ", timeout_us, ", \"outs\": [", names, "]}");
  return request.SetStrings("OUTPUT0", {1}, std::vector{description});
}

Status StreamNumbers(Request& request) {
  NEREID_ASSIGN_OR_RETURN(TensorView input, request.Input("IN"));
  NEREID_ASSIGN_OR_RETURN(const int32_t count, input.Scalar<int32_t>());
  if (count == 1000) return Raised(request, "RuntimeError: boom from decoupled execute", 12);
  ResponseSender& sender = request.sender();
  for (int32_t i = 0; i < std::abs(count); ++i) {
    NEREID_ASSIGN_OR_RETURN(Response response, sender.NewResponse());
    NEREID_RETURN_IF_ERROR(response.SetOutput<int32_t>("OUT", {1}, std::span(&i, 1)));
    NEREID_RETURN_IF_ERROR(sender.Send(std::move(response)));
  }
  if (count < 0) NEREID_RETURN_IF_ERROR(sender.SendError(InternalError("stream error")));
  return sender.Finish();
}

Status StreamText(Request& request) {
  NEREID_ASSIGN_OR_RETURN(TensorView input, request.Input("text_input"));
  NEREID_ASSIGN_OR_RETURN(const std::string_view text, input.String());
  NEREID_ASSIGN_OR_RETURN(const int32_t count, request.ScalarOr<int32_t>("max_tokens", 1));
  NEREID_ASSIGN_OR_RETURN(const std::string parameters, ParametersJson(request, Spacing::kCompact));
  const std::vector<std::string> piece = {StrCat(text, " ", parameters)};
  ResponseSender& sender = request.sender();
  for (int32_t i = 0; i < count; ++i) {
    NEREID_ASSIGN_OR_RETURN(Response response, sender.NewResponse());
    NEREID_RETURN_IF_ERROR(response.SetStrings("text_output", {1}, piece));
    NEREID_RETURN_IF_ERROR(response.SetOutput<int32_t>("index", {1}, std::span(&i, 1)));
    NEREID_RETURN_IF_ERROR(sender.Send(std::move(response)));
    if (text == "fail") {
      NEREID_RETURN_IF_ERROR(sender.SendError(InternalError("generation failed")));
      break;
    }
  }
  return sender.Finish();
}

Status AddToSum(Request& request, Sums& sums) {
  NEREID_ASSIGN_OR_RETURN(TensorView input, request.Input("INPUT"));
  NEREID_ASSIGN_OR_RETURN(TensorView id, request.Input("CORRID"));
  NEREID_ASSIGN_OR_RETURN(TensorView start, request.Input("START"));
  NEREID_ASSIGN_OR_RETURN(TensorView end, request.Input("END"));
  NEREID_ASSIGN_OR_RETURN(const int32_t value, input.Scalar<int32_t>());
  NEREID_ASSIGN_OR_RETURN(const uint64_t correlation_id, id.Scalar<uint64_t>());
  NEREID_ASSIGN_OR_RETURN(const float is_start, start.Scalar<float>());
  NEREID_ASSIGN_OR_RETURN(const float is_end, end.Scalar<float>());
  int32_t& sum = sums[correlation_id];
  sum = (is_start != 0 ? 0 : sum) + value;
  NEREID_RETURN_IF_ERROR(
      request.SetOutput<int32_t>("OUTPUT", input.shape(), std::span<const int32_t>(&sum, 1)));
  if (is_end != 0) sums.erase(correlation_id);
  return {};
}

Status SleepThenCopy(Request& request) {
  NEREID_ASSIGN_OR_RETURN(TensorView input, request.Input("INPUT0"));
  NEREID_ASSIGN_OR_RETURN(const float seconds, input.Scalar<float>());
  std::this_thread::sleep_for(std::chrono::duration<float>(seconds));
  return CopyTensor(request, input, "OUTPUT0");
}

}  // namespace nereid::golden
