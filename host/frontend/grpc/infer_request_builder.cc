// See infer_request_builder.h.
#include "host/frontend/grpc/infer_request_builder.h"

#include <limits>
#include <optional>

#include "host/frontend/client_input.h"

namespace nereid {
namespace {

using inference::InferParameter;
using Input = inference::ModelInferRequest::InferInputTensor;
using Output = inference::ModelInferRequest::InferRequestedOutputTensor;

constexpr std::string_view kEmptyFinalKey = "triton_enable_empty_final_response";

// `owner` is " for tensor 'X'" if the parameter belongs to a tensor.
Status WrongType(std::string_view key, std::string_view expected, std::string_view owner = "") {
  return InvalidArgError("invalid value type for '", key, "' parameter", owner, ", expected ",
                         expected, ".");
}

Result<bool> AsBool(const std::string& key, const InferParameter& value) {
  if (!value.has_bool_param()) return WrongType(key, "bool_param");
  return value.bool_param();
}

Result<uint64_t> AsUnsigned(const std::string& key, const InferParameter& value) {
  if (!value.has_int64_param()) return WrongType(key, "int64_param");
  if (value.int64_param() < 0) {
    return InvalidArgError("invalid value for '", key, "', expected value >= 0.");
  }
  return static_cast<uint64_t>(value.int64_param());
}

Status SetSequenceId(const std::string& key, const InferParameter& value, InferRequest& request) {
  switch (value.parameter_choice_case()) {
    case InferParameter::kInt64Param:
      return request.SetCorrelationId(static_cast<uint64_t>(value.int64_param()));
    case InferParameter::kStringParam:
      NEREID_RETURN_IF_ERROR(RejectZeroByte(key, value.string_param()));
      return request.SetCorrelationId(value.string_param().c_str());
    default:
      return WrongType(key, "int64_param or string_param");
  }
}

// Passes a parameter that the host does not interpret to the backend.
Status SetCustom(const std::string& key, const InferParameter& value, InferRequest& request) {
  NEREID_RETURN_IF_ERROR(RejectZeroByte("parameters", key));
  switch (value.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return request.SetParameter(key.c_str(), value.bool_param());
    case InferParameter::kInt64Param:
      return request.SetParameter(key.c_str(), value.int64_param());
    case InferParameter::kStringParam:
      NEREID_RETURN_IF_ERROR(RejectZeroByte(key, value.string_param()));
      return request.SetParameter(key.c_str(), value.string_param().c_str());
    case InferParameter::kDoubleParam:
      return request.SetParameter(key.c_str(), value.double_param());
    default:
      return WrongType(key, "int64_param, bool_param, or string_param");
  }
}

// Adds TRITONSERVER_RequestFlag bits to `flags`.
Status SetParameter(const std::string& key, const InferParameter& value, uint32_t& flags,
                    ResponseOptions& response_options, InferRequest& request) {
  if (key == "sequence_id") return SetSequenceId(key, value, request);
  if (key == "sequence_start" || key == "sequence_end") {
    NEREID_ASSIGN_OR_RETURN(const bool is_set, AsBool(key, value));
    const uint32_t flag = key == "sequence_start" ? TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
                                                  : TRITONSERVER_REQUEST_FLAG_SEQUENCE_END;
    if (is_set) flags |= flag;
    return {};
  }
  if (key == "priority") {
    if (value.has_uint64_param()) return request.SetPriority(value.uint64_param());
    if (!value.has_int64_param()) return WrongType(key, "int64_param or uint64_param");
    NEREID_ASSIGN_OR_RETURN(const uint64_t priority, AsUnsigned(key, value));
    return request.SetPriority(priority);
  }
  if (key == "timeout") {
    NEREID_ASSIGN_OR_RETURN(const uint64_t timeout_us, AsUnsigned(key, value));
    return request.SetTimeoutUs(timeout_us);
  }
  if (key == kEmptyFinalKey) {
    NEREID_ASSIGN_OR_RETURN(response_options.enable_empty_final, AsBool(key, value));
    return {};
  }
  if (key.starts_with("triton_")) {
    return InvalidArgError(
        "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following "
        "keys starting with 'triton_' are allowed: ",
        kEmptyFinalKey);
  }
  return SetCustom(key, value, request);
}

Status SetParameters(const InferMessage& message, const ForwardedHeaders& headers,
                     ResponseOptions& response_options, InferRequest& request) {
  uint32_t flags = 0;
  for (const auto& [key, value] : message.message().parameters()) {
    NEREID_RETURN_IF_ERROR(SetParameter(key, value, flags, response_options, request));
  }
  if (flags != 0) NEREID_RETURN_IF_ERROR(request.SetFlags(flags));
  for (const auto& [key, value] : headers) {
    NEREID_RETURN_IF_ERROR(RejectZeroByte(key, value));  // binary metadata may contain zero bytes
    NEREID_RETURN_IF_ERROR(request.SetParameter(key.c_str(), value.c_str()));
  }
  return {};
}

// The shared-memory range that a tensor's parameters name, if any.
template <typename Tensor>
Result<std::optional<SharedRange>> SharedRangeOf(const Tensor& tensor) {
  const auto& parameters = tensor.parameters();
  if (parameters.empty()) return std::optional<SharedRange>();
  const auto region = parameters.find("shared_memory_region");
  if (region == parameters.end()) {
    for (const char* const key : {"shared_memory_offset", "shared_memory_byte_size"}) {
      if (!parameters.contains(key)) continue;
      return InvalidArgError("'", key,
                             "' can not be specified without 'shared_memory_region' parameter for "
                             "tensor '",
                             tensor.name(), "'");
    }
    return std::optional<SharedRange>();
  }
  const std::string owner = StrCat(" for tensor '", tensor.name(), "'");
  if (!region->second.has_string_param()) {
    return WrongType(region->first, "string_param", owner);
  }
  const auto offset = parameters.find("shared_memory_offset");
  if (offset != parameters.end() && !offset->second.has_int64_param()) {
    return WrongType(offset->first, "int64_param", owner);
  }
  const auto size = parameters.find("shared_memory_byte_size");
  if (size == parameters.end()) {
    return InvalidArgError(
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter "
        "for tensor '",
        tensor.name(), "'");
  }
  if (!size->second.has_int64_param()) return WrongType(size->first, "int64_param", owner);
  // A negative value becomes one that exceeds every region, so the later range check rejects it. As
  // in Triton, an unknown region is reported first.
  SharedRange range{region->second.string_param(), 0,
                    static_cast<uint64_t>(size->second.int64_param())};
  if (offset != parameters.end()) {
    range.offset = static_cast<uint64_t>(offset->second.int64_param());
  }
  return std::optional(std::move(range));
}

// Returns `raw` itself if it is aligned for `datatype`, else an aligned copy.
// *Rationale:* messages place tensors at any byte offset, and backends read elements through typed
// pointers.
std::string_view RawAsBytes(std::string_view raw, DataType datatype, InputStorage& storage) {
  const size_t alignment = std::max<size_t>(ByteSize(datatype), 1);
  if (reinterpret_cast<uintptr_t>(raw.data()) % alignment == 0) return raw;
  return storage.emplace_back(raw);
}

bool HasZeroDim(const Input& input) {
  for (const int64_t dim : input.shape()) {
    if (dim == 0) return true;
  }
  return false;
}

// `raw` is the input's raw_input_contents entry, if it has one.
Result<std::string_view> InputData(const Input& input, std::optional<std::string_view> raw,
                                   DataType datatype, const std::string& model,
                                   InputStorage& storage) {
  if (raw.has_value()) return RawAsBytes(*raw, datatype, storage);
  if (input.has_contents()) {
    return ContentsAsBytes(input.contents(), datatype, input.name(), model, storage);
  }
  if (HasZeroDim(input)) return std::string_view();
  return InvalidArgError("unable to find data for input tensor '", input.name(), "' for model '",
                         model, "' in request.");
}

Status AddSharedInput(const Input& input, const MappedRange& range, InferRequest& request) {
  return request.AppendInputData(input.name().c_str(), range.base, range.size_bytes,
                                 range.memory_type, range.memory_type_id);
}

// Adds all inputs to the request. Inputs in shared memory have no raw_input_contents entry.
class InputAdder {
 public:
  InputAdder(const SharedMemoryManager& shared_memory, RequestResources& resources,
             InferRequest& request)
      : shared_memory_(shared_memory),
        resources_(resources),
        request_(request),
        model_(resources.message.message().model_name()) {}

  Status AddAll() {
    const auto& inputs = resources_.message.message().inputs();
    for (const Input& input : inputs) NEREID_RETURN_IF_ERROR(Declare(input));
    for (const Input& input : inputs) NEREID_RETURN_IF_ERROR(AddData(input));
    const size_t num_raw = resources_.message.raw_count();
    // Without inputs, a later check reports the error.
    if (num_raw <= num_raw_used_ || inputs.empty()) return {};
    return InvalidArgError("raw_input_contents for model '", model_, "': expected ", num_raw_used_,
                           " entries, one an input, got ", num_raw);
  }

 private:
  Status Declare(const Input& input) {
    NEREID_RETURN_IF_ERROR(RejectZeroByte("name", input.name()));
    return request_.AddInput(input.name().c_str(), ToC(DataTypeOf(input)),
                             {input.shape().data(), static_cast<size_t>(input.shape_size())});
  }

  Status AddData(const Input& input) {
    NEREID_ASSIGN_OR_RETURN(const std::optional<SharedRange> shared, SharedRangeOf(input));
    if (shared.has_value()) {
      if (input.has_contents()) {
        return InvalidArgError(
            "unexpected 'content' provided when using shared memory for input tensor '",
            input.name(), "' for model '", model_, "'");
      }
      NEREID_ASSIGN_OR_RETURN(MappedRange range, shared_memory_.Find(*shared));
      resources_.shared_inputs.push_back(std::move(range));
      return AddSharedInput(input, resources_.shared_inputs.back(), request_);
    }
    if (resources_.message.raw_count() > 0 && input.has_contents()) {
      return InvalidArgError(
          "contents field must not be specified when using raw_input_contents for '", input.name(),
          "' for model '", model_, "'");
    }
    NEREID_ASSIGN_OR_RETURN(const std::optional<std::string_view> raw, NextRaw(input));
    NEREID_ASSIGN_OR_RETURN(const std::string_view data,
                            InputData(input, raw, DataTypeOf(input), model_, resources_.storage));
    if (data.empty()) return {};
    return request_.AppendInputData(input.name().c_str(), data.data(), data.size());
  }

  // Names that the protocol does not define map to kInvalid; later checks report them.
  static DataType DataTypeOf(const Input& input) {
    const std::string& name = input.datatype();
    const bool is_config_name = name == "STRING" || name.starts_with("TYPE_");
    return is_config_name ? DataType::kInvalid : DataTypeFromName(name);
  }

  Result<std::optional<std::string_view>> NextRaw(const Input& input) {
    const size_t index = num_raw_used_++;
    const size_t num_raw = resources_.message.raw_count();
    if (num_raw == 0) return std::optional<std::string_view>();
    if (index < num_raw) return std::optional(resources_.message.raw(index));
    return InvalidArgError("unable to find data for input tensor '", input.name(), "' for model '",
                           model_, "' in request.");
  }

  const SharedMemoryManager& shared_memory_;
  RequestResources& resources_;
  InferRequest& request_;
  const std::string& model_;
  size_t num_raw_used_ = 0;
};

// Number of classes that the output's parameters request; 0 if they request no classification.
Result<uint64_t> ClassesOf(const Output& output, bool is_shared) {
  if (output.parameters().empty()) return uint64_t{0};
  const auto found = output.parameters().find("classification");
  if (found == output.parameters().end()) return uint64_t{0};
  const InferParameter& value = found->second;
  if (!value.has_int64_param()) {
    return InvalidArgError(
        "invalid value type for 'classification' parameter, expected int64_param");
  }
  if (value.int64_param() < 1) {
    return InvalidArgError("invalid value for 'classification' parameter, expected >= 0");
  }
  if (is_shared) {
    return InvalidArgError("output can't set both 'shared_memory_region' and 'classification'");
  }
  return static_cast<uint64_t>(value.int64_param());
}

Status AddRequestedOutputs(const SharedMemoryManager& shared_memory, RequestResources& resources,
                           InferRequest& request) {
  for (const Output& output : resources.message.message().outputs()) {
    NEREID_RETURN_IF_ERROR(RejectZeroByte("name", output.name()));
    NEREID_RETURN_IF_ERROR(request.AddRequestedOutput(output.name().c_str()));
    NEREID_ASSIGN_OR_RETURN(const std::optional<SharedRange> shared, SharedRangeOf(output));
    NEREID_ASSIGN_OR_RETURN(const uint64_t num_classes, ClassesOf(output, shared.has_value()));
    if (num_classes != 0)
      resources.response_options.classifications.push_back({output.name(), num_classes});
    if (!shared.has_value()) continue;
    NEREID_ASSIGN_OR_RETURN(MappedRange range, shared_memory.Find(*shared));
    resources.outputs.shared.push_back({output.name(), std::move(range)});
  }
  return {};
}

}  // namespace

void RequestResources::ReleaseSharedRegions() {
  for (MappedRange& range : shared_inputs) range.use_count.reset();
  for (SharedOutput& output : outputs.shared) output.range.use_count.reset();
}

Status RequestResources::CheckSharedRegions() const {
  for (const MappedRange& range : shared_inputs) NEREID_RETURN_IF_ERROR(range.CheckIntact());
  for (const SharedOutput& output : outputs.shared) {
    NEREID_RETURN_IF_ERROR(output.range.CheckIntact());
  }
  return {};
}

Status FillRequest(const SharedMemoryManager& shared_memory, const ForwardedHeaders& headers,
                   RequestResources& resources, InferRequest& request) {
  const std::string& id = resources.message.message().id();
  NEREID_RETURN_IF_ERROR(RejectZeroByte("id", id));
  if (!id.empty()) NEREID_RETURN_IF_ERROR(request.SetId(id.c_str()));
  NEREID_RETURN_IF_ERROR(
      SetParameters(resources.message, headers, resources.response_options, request));
  NEREID_RETURN_IF_ERROR(InputAdder(shared_memory, resources, request).AddAll());
  return AddRequestedOutputs(shared_memory, resources, request);
}

}  // namespace nereid
