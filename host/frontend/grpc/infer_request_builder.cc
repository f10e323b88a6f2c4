// See infer_request_builder.h.
#include "infer_request_builder.h"

#include <limits>
#include <optional>

namespace nereid {
namespace {

using inference::InferParameter;
using Input = inference::ModelInferRequest::InferInputTensor;
using Output = inference::ModelInferRequest::InferRequestedOutputTensor;

constexpr std::string_view kEmptyFinalKey = "triton_enable_empty_final_response";

Status WrongType(std::string_view key, std::string_view expected) {
  return InvalidArgError("invalid value type for '", key, "' parameter, expected ", expected, ".");
}

Result<bool> AsBool(const std::string& key, const InferParameter& value) {
  if (!value.has_bool_param()) return WrongType(key, "bool_param");
  return value.bool_param();
}

Result<uint64_t> AsUnsigned(const std::string& key, const InferParameter& value) {
  if (value.has_uint64_param()) return value.uint64_param();
  if (!value.has_int64_param()) return WrongType(key, "int64_param or uint64_param");
  if (value.int64_param() < 0) {
    return InvalidArgError("invalid value for '", key, "', expected value >= 0, got ",
                           value.int64_param());
  }
  return static_cast<uint64_t>(value.int64_param());
}

Status SetSequenceId(const std::string& key, const InferParameter& value, InferRequest& request) {
  switch (value.parameter_choice_case()) {
    case InferParameter::kInt64Param:
      return request.SetCorrelationId(static_cast<uint64_t>(value.int64_param()));
    case InferParameter::kUint64Param:
      return request.SetCorrelationId(value.uint64_param());
    case InferParameter::kStringParam:
      return request.SetCorrelationId(value.string_param().c_str());
    default:
      return WrongType(key, "int64_param or string_param");
  }
}

// A parameter that the host knows nothing of: it goes to the backend.
Status SetCustom(const std::string& key, const InferParameter& value, InferRequest& request) {
  switch (value.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return request.SetParameter(key.c_str(), value.bool_param());
    case InferParameter::kInt64Param:
      return request.SetParameter(key.c_str(), value.int64_param());
    case InferParameter::kStringParam:
      return request.SetParameter(key.c_str(), value.string_param().c_str());
    case InferParameter::kDoubleParam:
      return request.SetParameter(key.c_str(), value.double_param());
    case InferParameter::kUint64Param:
      if (value.uint64_param() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return InvalidArgError("invalid value for '", key, "' parameter, expected at most ",
                               std::numeric_limits<int64_t>::max(), ", got ", value.uint64_param());
      }
      return request.SetParameter(key.c_str(), static_cast<int64_t>(value.uint64_param()));
    default:
      return WrongType(key, "int64_param, bool_param, double_param, or string_param");
  }
}

// `flags` gathers the TRITONSERVER_RequestFlag bits.
Status SetParameter(const std::string& key, const InferParameter& value, uint32_t& flags,
                    ResponseWishes& wishes, InferRequest& request) {
  if (key == "sequence_id") return SetSequenceId(key, value, request);
  if (key == "sequence_start" || key == "sequence_end") {
    NEREID_ASSIGN_OR_RETURN(const bool is_set, AsBool(key, value));
    const uint32_t flag = key == "sequence_start" ? TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
                                                  : TRITONSERVER_REQUEST_FLAG_SEQUENCE_END;
    if (is_set) flags |= flag;
    return {};
  }
  if (key == "priority") {
    NEREID_ASSIGN_OR_RETURN(const uint64_t priority, AsUnsigned(key, value));
    return request.SetPriority(priority);
  }
  if (key == "timeout") {
    NEREID_ASSIGN_OR_RETURN(const uint64_t timeout_us, AsUnsigned(key, value));
    return request.SetTimeoutUs(timeout_us);
  }
  if (key == kEmptyFinalKey) {
    NEREID_ASSIGN_OR_RETURN(wishes.wants_empty_final, AsBool(key, value));
    return {};
  }
  if (key.starts_with("triton_")) {
    return InvalidArgError(
        "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following "
        "keys starting with 'triton_' are allowed: ",
        kEmptyFinalKey, "; got '", key, "'");
  }
  return SetCustom(key, value, request);
}

Status SetParameters(const InferMessage& message, const ForwardedHeaders& headers,
                     ResponseWishes& wishes, InferRequest& request) {
  uint32_t flags = 0;
  for (const auto& [key, value] : message.message().parameters()) {
    NEREID_RETURN_IF_ERROR(SetParameter(key, value, flags, wishes, request));
  }
  if (flags != 0) NEREID_RETURN_IF_ERROR(request.SetFlags(flags));
  for (const auto& [key, value] : headers) {
    NEREID_RETURN_IF_ERROR(request.SetParameter(key.c_str(), value.c_str()));
  }
  return {};
}

template <typename Tensor>
Status RefuseSharedMemory(std::string_view role, const Tensor& tensor) {
  for (const auto& [key, value] : tensor.parameters()) {
    if (!key.starts_with("shared_memory_")) continue;
    return UnsupportedError(role, " '", tensor.name(), "': parameter '", key,
                            "': tensors in shared memory are not supported");
  }
  return {};
}

// The tensor in one piece whose address suits its elements: in place when it lies so, else copied.
// *Rationale:* frames split tensors at any byte, and backends read elements through typed pointers.
std::string_view RawAsBytes(const RawContents& raw, DataType datatype, InputStorage& storage) {
  if (raw.pieces.empty()) return {};
  const std::string_view first = raw.pieces.front();
  const size_t alignment = std::max<size_t>(ByteSize(datatype), 1);
  if (raw.pieces.size() == 1 && reinterpret_cast<uintptr_t>(first.data()) % alignment == 0) {
    return first;
  }
  std::string& copy = storage.emplace_back();
  copy.reserve(raw.size_bytes);
  for (const std::string_view piece : raw.pieces) copy.append(piece);
  return copy;
}

bool HasZeroDim(const Input& input) {
  for (const int64_t dim : input.shape()) {
    if (dim == 0) return true;
  }
  return false;
}

// `raw` is the input's entry of raw_input_contents, if the message has any.
Status AddInput(const Input& input, std::optional<RawContents> raw, const std::string& model,
                InputStorage& storage, InferRequest& request) {
  NEREID_RETURN_IF_ERROR(RefuseSharedMemory("input", input));
  const DataType datatype = input.datatype().starts_with("TYPE_")
                                ? DataType::kInvalid
                                : DataTypeFromName(input.datatype());
  if (datatype == DataType::kInvalid) {
    return InvalidArgError("input '", input.name(), "' for model '", model, "': unknown datatype '",
                           input.datatype(), "'");
  }
  const char* const name = input.name().c_str();
  NEREID_RETURN_IF_ERROR(request.AddInput(
      name, ToC(datatype), {input.shape().data(), static_cast<size_t>(input.shape_size())}));
  std::string_view data;
  if (raw.has_value()) {
    if (input.has_contents()) {
      return InvalidArgError(
          "contents field must not be specified when using raw_input_contents for '", input.name(),
          "' for model '", model, "'");
    }
    data = RawAsBytes(*raw, datatype, storage);
  } else if (input.has_contents()) {
    NEREID_ASSIGN_OR_RETURN(
        data, ContentsAsBytes(input.contents(), datatype, input.name(), model, storage));
  } else if (!HasZeroDim(input)) {
    return InvalidArgError("unable to find data for input tensor '", input.name(), "' for model '",
                           model, "' in request.");
  }
  return data.empty() ? Status() : request.AppendInputData(name, data.data(), data.size());
}

Status AddInputs(const InferMessage& message, InputStorage& storage, InferRequest& request) {
  const auto& inputs = message.message().inputs();
  const std::string& model = message.message().model_name();
  const size_t num_raw = message.raw_count();
  for (size_t i = 0; i < static_cast<size_t>(inputs.size()); ++i) {
    const Input& input = inputs[static_cast<int>(i)];
    if (num_raw > 0 && i >= num_raw) {
      return InvalidArgError("unable to find data for input tensor '", input.name(),
                             "' for model '", model, "' in request.");
    }
    const auto raw = num_raw > 0 ? std::optional(message.raw(i)) : std::nullopt;
    NEREID_RETURN_IF_ERROR(AddInput(input, raw, model, storage, request));
  }
  if (num_raw > static_cast<size_t>(inputs.size())) {
    return InvalidArgError("raw_input_contents for model '", model, "': expected ", inputs.size(),
                           " entries, one an input, got ", num_raw);
  }
  return {};
}

Status AddRequestedOutputs(const InferMessage& message, ResponseWishes& wishes,
                           InferRequest& request) {
  for (const Output& output : message.message().outputs()) {
    NEREID_RETURN_IF_ERROR(RefuseSharedMemory("output", output));
    NEREID_RETURN_IF_ERROR(request.AddRequestedOutput(output.name().c_str()));
    const auto found = output.parameters().find("classification");
    if (found == output.parameters().end()) continue;
    const InferParameter& value = found->second;
    if (!value.has_int64_param()) return WrongType("classification", "int64_param");
    if (value.int64_param() < 1) {
      return InvalidArgError("invalid value for 'classification' parameter of output '",
                             output.name(), "', expected >= 1, got ", value.int64_param());
    }
    wishes.classifications.push_back({output.name(), static_cast<uint64_t>(value.int64_param())});
  }
  return {};
}

}  // namespace

Status FillRequest(const InferMessage& message, const ForwardedHeaders& headers,
                   InputStorage& storage, ResponseWishes& wishes, InferRequest& request) {
  if (!message.message().id().empty()) {
    NEREID_RETURN_IF_ERROR(request.SetId(message.message().id().c_str()));
  }
  NEREID_RETURN_IF_ERROR(SetParameters(message, headers, wishes, request));
  NEREID_RETURN_IF_ERROR(AddInputs(message, storage, request));
  return AddRequestedOutputs(message, wishes, request);
}

}  // namespace nereid
