// TRITONSERVER_Error. [any thread]
#include "host/core/capi/handles.h"

using nereid::ErrorObject;
using nereid::FromHandle;
using nereid::StatusCode;

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* msg) {
  const auto status = static_cast<uint32_t>(code) <= TRITONSERVER_ERROR_CANCELLED
                          ? static_cast<StatusCode>(code)
                          : StatusCode::kUnknown;
  return nereid::ToHandle(new ErrorObject{status, msg == nullptr ? "" : msg});
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) {
  delete FromHandle(error);
}

TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) {
  if (error == nullptr) return TRITONSERVER_ERROR_UNKNOWN;
  return static_cast<TRITONSERVER_Error_Code>(FromHandle(error)->code);
}

const char* TRITONSERVER_ErrorCodeString(TRITONSERVER_Error* error) {
  return nereid::StatusCodeName(error == nullptr ? StatusCode::kUnknown : FromHandle(error)->code);
}

const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) {
  return error == nullptr ? "" : FromHandle(error)->message.c_str();
}

}  // extern "C"
