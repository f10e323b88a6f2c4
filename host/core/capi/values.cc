// TRITONSERVER_Error, TRITONSERVER_Message and TRITONSERVER_Parameter. [any thread]
#include "base/json_reader.h"
#include "host/core/capi/handles.h"

using nereid::Status;
using nereid::StatusCode;
using nereid::core::ErrorObject;
using nereid::core::FromHandle;
using nereid::core::JsonMessage;
using nereid::core::Parameter;

namespace {

TRITONSERVER_Parameter* New(const char* name, Parameter::Value value) {
  return nereid::core::ToHandle(new Parameter(name, std::move(value)));
}

}  // namespace

extern "C" {

// ---- TRITONSERVER_Error ----

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* msg) {
  const auto status = static_cast<uint32_t>(code) <= TRITONSERVER_ERROR_CANCELLED
                          ? static_cast<StatusCode>(code)
                          : StatusCode::kUnknown;
  return nereid::core::ToHandle(new ErrorObject{status, msg == nullptr ? "" : msg});
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) {
  delete FromHandle(error);
}

TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) {
  if (error == nullptr) return TRITONSERVER_ERROR_UNKNOWN;
  return static_cast<TRITONSERVER_Error_Code>(FromHandle(error)->code);
}

const char* TRITONSERVER_ErrorCodeString(TRITONSERVER_Error* error) {
  return nereid::core::StatusCodeName(error == nullptr ? StatusCode::kUnknown
                                                       : FromHandle(error)->code);
}

const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) {
  return error == nullptr ? "" : FromHandle(error)->message.c_str();
}

// ---- TRITONSERVER_Message ----

TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message** message,
                                                              const char* base, size_t byte_size) {
  NEREID_RETURN_IF_NULL(message);
  if (byte_size > 0) NEREID_RETURN_IF_NULL(base);
  return nereid::core::AtCBoundary([&]() -> Status {
    std::string text(base, byte_size);
    NEREID_RETURN_IF_ERROR(nereid::CheckJson(text, "message"));
    *message = nereid::core::ToHandle(new JsonMessage(std::move(text)));
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  delete FromHandle(message);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message,
                                                        const char** base, size_t* byte_size) {
  NEREID_RETURN_IF_NULL(message);
  NEREID_RETURN_IF_NULL(base);
  NEREID_RETURN_IF_NULL(byte_size);
  const std::string& text = FromHandle(message)->json();
  *base = text.c_str();
  *byte_size = text.size();
  return nullptr;
}

// ---- TRITONSERVER_Parameter ----

// Returns null for a null name or value, and for a type that needs another constructor.
TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(const char* name,
                                                  const TRITONSERVER_ParameterType type,
                                                  const void* value) {
  if (name == nullptr || value == nullptr) return nullptr;
  switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
      return New(name, std::string(static_cast<const char*>(value)));
    case TRITONSERVER_PARAMETER_INT:
      return New(name, *static_cast<const int64_t*>(value));
    case TRITONSERVER_PARAMETER_BOOL:
      return New(name, *static_cast<const bool*>(value));
    case TRITONSERVER_PARAMETER_DOUBLE:
      return New(name, *static_cast<const double*>(value));
    case TRITONSERVER_PARAMETER_BYTES:
      break;
  }
  return nullptr;
}

TRITONSERVER_Parameter* TRITONSERVER_ParameterBytesNew(const char* name, const void* byte_ptr,
                                                       const uint64_t size) {
  if (name == nullptr || (byte_ptr == nullptr && size > 0)) return nullptr;
  return New(name, Parameter::Bytes{byte_ptr, size});
}

void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter* parameter) {
  delete nereid::core::FromHandle(parameter);
}

}  // extern "C"
