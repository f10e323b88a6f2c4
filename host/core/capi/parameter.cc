// TRITONSERVER_Parameter. [any thread]
#include "host/core/capi/handles.h"

using nereid::Parameter;

namespace {

TRITONSERVER_Parameter* New(const char* name, Parameter::Value value) {
  return nereid::ToHandle(new Parameter(name, std::move(value)));
}

}  // namespace

extern "C" {

// Null for a null name or value and for a type that needs another constructor.
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
  delete nereid::FromHandle(parameter);
}

}  // extern "C"
