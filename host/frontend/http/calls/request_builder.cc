// Sets only what the body contains. Header patterns use RE2, whose run time is linear in the
// header's length for every pattern.
#include "host/frontend/http/calls/request_builder.h"

#include <re2/re2.h>

namespace nereid::http {
namespace {

Status ApplyParameter(InferRequest& request, const RequestParameter& parameter) {
  const char* const name = parameter.name.c_str();
  if (const auto* text = std::get_if<std::string>(&parameter.value)) {
    return request.SetParameter(name, text->c_str());
  }
  if (const auto* integer = std::get_if<int64_t>(&parameter.value)) {
    return request.SetParameter(name, *integer);
  }
  if (const auto* boolean = std::get_if<bool>(&parameter.value)) {
    return request.SetParameter(name, *boolean);
  }
  return request.SetParameter(name, std::get<double>(parameter.value));
}

Status ApplySequence(InferRequest& request, const RequestOptions& options) {
  if (options.sequence_name.has_value()) {
    NEREID_RETURN_IF_ERROR(request.SetCorrelationId(options.sequence_name->c_str()));
  } else if (options.sequence_id != 0) {
    NEREID_RETURN_IF_ERROR(request.SetCorrelationId(options.sequence_id));
  }
  const uint32_t flags = (options.sequence_start ? TRITONSERVER_REQUEST_FLAG_SEQUENCE_START : 0) |
                         (options.sequence_end ? TRITONSERVER_REQUEST_FLAG_SEQUENCE_END : 0);
  return flags == 0 ? Status::Ok() : request.SetFlags(flags);
}

Status ApplyOptions(InferRequest& request, const RequestOptions& options) {
  if (!options.id.empty()) NEREID_RETURN_IF_ERROR(request.SetId(options.id.c_str()));
  NEREID_RETURN_IF_ERROR(ApplySequence(request, options));
  if (options.priority != 0) NEREID_RETURN_IF_ERROR(request.SetPriority(options.priority));
  if (options.timeout_us != 0) NEREID_RETURN_IF_ERROR(request.SetTimeoutUs(options.timeout_us));
  for (const RequestParameter& parameter : options.parameters) {
    NEREID_RETURN_IF_ERROR(ApplyParameter(request, parameter));
  }
  return Status::Ok();
}

}  // namespace

Result<InferRequest> BuildRequest(const Server& server, const RequestedModel& model,
                                  const RequestOptions& options,
                                  std::span<const InputTensor> inputs,
                                  std::span<const RequestedOutput> outputs) {
  NEREID_ASSIGN_OR_RETURN(InferRequest request,
                          server.NewRequest(model.name.c_str(), model.version));
  NEREID_RETURN_IF_ERROR(ApplyOptions(request, options));
  for (const InputTensor& input : inputs) {
    NEREID_RETURN_IF_ERROR(request.AddInput(input.name.c_str(), input.datatype, input.shape));
    const std::string_view bytes = input.bytes();
    NEREID_RETURN_IF_ERROR(request.AppendInputData(input.name.c_str(), bytes.data(), bytes.size(),
                                                   input.mapped.memory_type,
                                                   input.mapped.memory_type_id));
  }
  for (const RequestedOutput& output : outputs) {
    NEREID_RETURN_IF_ERROR(request.AddRequestedOutput(output.name.c_str()));
  }
  return request;
}

Result<InferRequest> BuildRawRequest(const Server& server, const RequestedModel& model,
                                     std::string_view bytes) {
  constexpr char kInputName[] = "raw_input";
  NEREID_ASSIGN_OR_RETURN(InferRequest request,
                          server.NewRequest(model.name.c_str(), model.version));
  NEREID_RETURN_IF_ERROR(request.AddRawInput(kInputName));
  NEREID_RETURN_IF_ERROR(request.AppendInputData(kInputName, bytes.data(), bytes.size()));
  return request;
}

HeaderForwarding::HeaderForwarding(std::unique_ptr<re2::RE2> pattern)
    : pattern_(std::move(pattern)) {}
HeaderForwarding::HeaderForwarding(HeaderForwarding&&) noexcept = default;
HeaderForwarding::~HeaderForwarding() = default;

Result<HeaderForwarding> HeaderForwarding::Create(const std::string& pattern) {
  if (pattern.empty()) return HeaderForwarding(nullptr);
  re2::RE2::Options options;
  options.set_case_sensitive(false);
  options.set_log_errors(false);
  auto compiled = std::make_unique<re2::RE2>(pattern, options);
  if (!compiled->ok()) {
    return InvalidArgError("header forward pattern '", pattern, "': ", compiled->error());
  }
  return HeaderForwarding(std::move(compiled));
}

Status HeaderForwarding::Apply(const RequestHead& head, const AccessControl& access,
                               InferRequest& request) const {
  if (pattern_ == nullptr) return Status::Ok();
  for (const auto& [name, value] : head.headers) {
    if (access.IsSecretHeader(name)) continue;
    if (!re2::RE2::PartialMatch({name.data(), name.size()}, *pattern_)) continue;
    const std::string key(name);
    NEREID_RETURN_IF_ERROR(request.SetParameter(key.c_str(), std::string(value).c_str()));
  }
  return Status::Ok();
}

}  // namespace nereid::http
