// See infer_request_builder.h.
#include "host/frontend/grpc/infer_request_builder.h"

#include <limits>
#include <optional>

#include "host/frontend/zero_byte.h"

namespace nereid {
namespace {

using inference::InferParameter;
using Input = inference::ModelInferRequest::InferInputTensor;
using Output = inference::ModelInferRequest::InferRequestedOutputTensor;

constexpr std::string_view kEmptyFinalKey = "triton_enable_empty_final_response";

// `owner`: " for tensor 'X'", where that has the parameter.
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
      NEREID_RETURN_IF_ERROR(RefuseZeroByte(key, value.string_param()));
      return request.SetCorrelationId(value.string_param().c_str());
    default:
      return WrongType(key, "int64_param or string_param");
  }
}

// A parameter that the host knows nothing of: it goes to the backend.
Status SetCustom(const std::string& key, const InferParameter& value, InferRequest& request) {
  NEREID_RETURN_IF_ERROR(RefuseZeroByte("parameters", key));
  switch (value.parameter_choice_case()) {
    case InferParameter::kBoolParam:
      return request.SetParameter(key.c_str(), value.bool_param());
    case InferParameter::kInt64Param:
      return request.SetParameter(key.c_str(), value.int64_param());
    case InferParameter::kStringParam:
      NEREID_RETURN_IF_ERROR(RefuseZeroByte(key, value.string_param()));
      return request.SetParameter(key.c_str(), value.string_param().c_str());
    case InferParameter::kDoubleParam:
      return request.SetParameter(key.c_str(), value.double_param());
    default:
      return WrongType(key, "int64_param, bool_param, or string_param");
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
    NEREID_ASSIGN_OR_RETURN(wishes.wants_empty_final, AsBool(key, value));
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
                     ResponseWishes& wishes, InferRequest& request) {
  uint32_t flags = 0;
  for (const auto& [key, value] : message.message().parameters()) {
    NEREID_RETURN_IF_ERROR(SetParameter(key, value, flags, wishes, request));
  }
  if (flags != 0) NEREID_RETURN_IF_ERROR(request.SetFlags(flags));
  for (const auto& [key, value] : headers) {
    NEREID_RETURN_IF_ERROR(RefuseZeroByte(key, value));  // binary metadata may
    NEREID_RETURN_IF_ERROR(request.SetParameter(key.c_str(), value.c_str()));
  }
  return {};
}

// The part of a region that a tensor's parameters name, if they do.
template <typename Tensor>
Result<std::optional<SharedRange>> SharedRangeOf(const Tensor& tensor) {
  const auto& parameters = tensor.parameters();
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
  // A value below 0 becomes one that no region has: whoever looks up the region says so, as in
  // Triton, where an unknown region comes first.
  SharedRange range{region->second.string_param(), 0,
                    static_cast<uint64_t>(size->second.int64_param())};
  if (offset != parameters.end()) {
    range.offset = static_cast<uint64_t>(offset->second.int64_param());
  }
  return std::optional(std::move(range));
}

// The tensor at an address that suits its elements: in place when it lies so, else copied.
// *Rationale:* messages put tensors at any byte, and backends read elements through typed pointers.
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

// `raw` is the input's entry of raw_input_contents, if it has one.
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

Status AddSharedInput(const Input& input, const SharedBlock& block, InferRequest& request) {
  return request.AppendInputData(input.name().c_str(), block.base, block.size_bytes,
                                 block.memory_type, block.memory_type_id);
}

// Walks the inputs; those in shared memory have no entry in raw_input_contents.
class InputAdder {
 public:
  InputAdder(const SharedMemory& shared_memory, InferParts& parts, InferRequest& request)
      : shared_memory_(shared_memory),
        parts_(parts),
        request_(request),
        model_(parts.message.message().model_name()) {}

  Status AddAll() {
    const auto& inputs = parts_.message.message().inputs();
    for (const Input& input : inputs) NEREID_RETURN_IF_ERROR(Declare(input));
    for (const Input& input : inputs) NEREID_RETURN_IF_ERROR(AddData(input));
    const size_t num_raw = parts_.message.raw_count();
    if (num_raw <= num_raw_wanted_ || inputs.empty()) return {};  // no inputs: said further on
    return InvalidArgError("raw_input_contents for model '", model_, "': expected ",
                           num_raw_wanted_, " entries, one an input, got ", num_raw);
  }

 private:
  Status Declare(const Input& input) {
    NEREID_RETURN_IF_ERROR(RefuseZeroByte("name", input.name()));
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
      NEREID_ASSIGN_OR_RETURN(SharedBlock block, shared_memory_.Find(*shared));
      parts_.shared_inputs.push_back(std::move(block));
      return AddSharedInput(input, parts_.shared_inputs.back(), request_);
    }
    if (parts_.message.raw_count() > 0 && input.has_contents()) {
      return InvalidArgError(
          "contents field must not be specified when using raw_input_contents for '", input.name(),
          "' for model '", model_, "'");
    }
    NEREID_ASSIGN_OR_RETURN(const std::optional<std::string_view> raw, NextRaw(input));
    NEREID_ASSIGN_OR_RETURN(const std::string_view data,
                            InputData(input, raw, DataTypeOf(input), model_, parts_.storage));
    if (data.empty()) return {};
    return request_.AppendInputData(input.name().c_str(), data.data(), data.size());
  }

  // What is none of the protocol's names stays invalid: the checks that follow say so.
  static DataType DataTypeOf(const Input& input) {
    const std::string& name = input.datatype();
    const bool is_config_name = name == "STRING" || name.starts_with("TYPE_");
    return is_config_name ? DataType::kInvalid : DataTypeFromName(name);
  }

  Result<std::optional<std::string_view>> NextRaw(const Input& input) {
    const size_t index = num_raw_wanted_++;
    const size_t num_raw = parts_.message.raw_count();
    if (num_raw == 0) return std::optional<std::string_view>();
    if (index < num_raw) return std::optional(parts_.message.raw(index));
    return InvalidArgError("unable to find data for input tensor '", input.name(), "' for model '",
                           model_, "' in request.");
  }

  const SharedMemory& shared_memory_;
  InferParts& parts_;
  InferRequest& request_;
  const std::string& model_;
  size_t num_raw_wanted_ = 0;
};

// How many classes the output's parameters ask for; 0 where they do not.
Result<uint64_t> ClassesOf(const Output& output, bool is_shared) {
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

Status AddRequestedOutputs(const SharedMemory& shared_memory, InferParts& parts,
                           InferRequest& request) {
  for (const Output& output : parts.message.message().outputs()) {
    NEREID_RETURN_IF_ERROR(RefuseZeroByte("name", output.name()));
    NEREID_RETURN_IF_ERROR(request.AddRequestedOutput(output.name().c_str()));
    NEREID_ASSIGN_OR_RETURN(const std::optional<SharedRange> shared, SharedRangeOf(output));
    NEREID_ASSIGN_OR_RETURN(const uint64_t num_classes, ClassesOf(output, shared.has_value()));
    if (num_classes != 0) parts.wishes.classifications.push_back({output.name(), num_classes});
    if (!shared.has_value()) continue;
    NEREID_ASSIGN_OR_RETURN(SharedBlock block, shared_memory.Find(*shared));
    parts.outputs.shared.push_back({output.name(), std::move(block)});
  }
  return {};
}

}  // namespace

void InferParts::EndSharedUse() {
  for (SharedBlock& block : shared_inputs) block.use.reset();
  for (SharedOutput& output : outputs.shared) output.block.use.reset();
}

Status InferParts::CheckShared() const {
  for (const SharedBlock& block : shared_inputs) NEREID_RETURN_IF_ERROR(block.CheckTouched());
  for (const SharedOutput& output : outputs.shared) {
    NEREID_RETURN_IF_ERROR(output.block.CheckTouched());
  }
  return {};
}

Status FillRequest(const SharedMemory& shared_memory, const ForwardedHeaders& headers,
                   InferParts& parts, InferRequest& request) {
  const std::string& id = parts.message.message().id();
  NEREID_RETURN_IF_ERROR(RefuseZeroByte("id", id));
  if (!id.empty()) NEREID_RETURN_IF_ERROR(request.SetId(id.c_str()));
  NEREID_RETURN_IF_ERROR(SetParameters(parts.message, headers, parts.wishes, request));
  NEREID_RETURN_IF_ERROR(InputAdder(shared_memory, parts, request).AddAll());
  return AddRequestedOutputs(shared_memory, parts, request);
}

}  // namespace nereid
