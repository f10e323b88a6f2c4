// Requests of the fake host and their inputs.
#include "tests/support/fake_core/handles.h"

using namespace nereid::fake;

namespace {

const void* ValueOf(const Parameter& parameter) {
  switch (parameter.type) {
    case TRITONSERVER_PARAMETER_STRING:
      return parameter.string_value.c_str();
    case TRITONSERVER_PARAMETER_INT:
      return &parameter.int_value;
    case TRITONSERVER_PARAMETER_BOOL:
      return &parameter.bool_value;
    default:
      return &parameter.double_value;
  }
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_RequestId(TRITONBACKEND_Request* request, const char** id) {
  *id = As<Request>(request)->id.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request* request,
                                                     bool* is_cancelled) {
  *is_cancelled = As<Request>(request)->is_cancelled;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request* request,
                                                       uint64_t* id) {
  *id = As<Request>(request)->correlation_id;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationIdString(TRITONBACKEND_Request*, const char**) {
  return Fail(TRITONSERVER_ERROR_INVALID_ARG, "the correlation id is a number");
}
TRITONSERVER_Error* TRITONBACKEND_RequestFlags(TRITONBACKEND_Request* request, uint32_t* flags) {
  *flags = As<Request>(request)->flags;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    TRITONBACKEND_Request* request, uint64_t* timeout) {
  *timeout = As<Request>(request)->timeout_us;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request* request,
                                                        uint32_t* count) {
  *count = static_cast<uint32_t>(As<Request>(request)->parameters.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestParameter(TRITONBACKEND_Request* request,
                                                   const uint32_t index, const char** key,
                                                   TRITONSERVER_ParameterType* type,
                                                   const void** vvalue) {
  const Parameter& parameter = As<Request>(request)->parameters.at(index);
  *key = parameter.name.c_str();
  *type = parameter.type;
  *vvalue = ValueOf(parameter);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request,
                                                    uint32_t* count) {
  *count = static_cast<uint32_t>(As<Request>(request)->inputs.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestInput(TRITONBACKEND_Request* request, const char* name,
                                               TRITONBACKEND_Input** input) {
  for (Input& candidate : As<Request>(request)->inputs) {
    if (candidate.name != name) continue;
    *input = As<TRITONBACKEND_Input>(&candidate);
    return nullptr;
  }
  return Fail(TRITONSERVER_ERROR_INVALID_ARG, std::string("no input '") + name + "'");
}
TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request* request,
                                                      const uint32_t index,
                                                      TRITONBACKEND_Input** input) {
  if (index >= As<Request>(request)->inputs.size()) {
    return Fail(TRITONSERVER_ERROR_INVALID_ARG, "index out of range");
  }
  *input = As<TRITONBACKEND_Input>(&As<Request>(request)->inputs[index]);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request,
                                                     uint32_t* count) {
  *count = static_cast<uint32_t>(As<Request>(request)->requested_outputs.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request,
                                                    const uint32_t index,
                                                    const char** output_name) {
  *output_name = As<Request>(request)->requested_outputs.at(index).c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, uint32_t) {
  As<Request>(request)->num_live_handles_at_release = num_live_handles;
  Record(As<Request>(request), "release");
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  TRITONSERVER_DataType* datatype,
                                                  const int64_t** shape, uint32_t* dims_count,
                                                  uint64_t* byte_size, uint32_t* buffer_count) {
  const auto& tensor = *As<Input>(input);
  uint64_t size_bytes = 0;
  for (const std::string& piece : tensor.pieces) size_bytes += piece.size();
  if (name != nullptr) *name = tensor.name.c_str();
  if (datatype != nullptr) *datatype = tensor.datatype;
  if (shape != nullptr) *shape = tensor.shape.data();
  if (dims_count != nullptr) *dims_count = static_cast<uint32_t>(tensor.shape.size());
  if (byte_size != nullptr) *byte_size = size_bytes;
  if (buffer_count != nullptr) *buffer_count = static_cast<uint32_t>(tensor.pieces.size());
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, const uint32_t index,
                                              const void** buffer, uint64_t* buffer_byte_size,
                                              TRITONSERVER_MemoryType* memory_type,
                                              int64_t* memory_type_id) {
  const auto& tensor = *As<Input>(input);
  *buffer = tensor.pieces.at(index).data();
  *buffer_byte_size = tensor.pieces[index].size();
  *memory_type = tensor.memory_type;
  *memory_type_id = 0;
  return nullptr;
}

}  // extern "C"
