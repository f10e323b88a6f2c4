#include "backends/ensemble/forward_request.h"

#include "nereid/error.h"

namespace nereid::ensemble {
namespace {

// A correlation id is a number or a string: asking for the wrong one is an error that means the
// other.
Status ForwardCorrelationId(TRITONBACKEND_Request* client, InferRequest& target) {
  uint64_t number = 0;
  if (ToStatus(TRITONBACKEND_RequestCorrelationId(client, &number)).ok()) {
    return number == 0 ? Status() : target.SetCorrelationId(number);
  }
  const char* text = "";
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestCorrelationIdString(client, &text)));
  return target.SetCorrelationId(text);
}

// The backend API has no question for the priority. In this host as in Triton both handle types
// name the same object, so the server API's question serves.
TRITONSERVER_Error* PriorityOf(TRITONBACKEND_Request* client, uint64_t* priority) {
  return TRITONSERVER_InferenceRequestPriorityUInt64(
      reinterpret_cast<TRITONSERVER_InferenceRequest*>(client), priority);
}

Status ForwardPriority(TRITONBACKEND_Request* client, InferRequest& target) {
  uint64_t priority = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(PriorityOf(client, &priority)));
  return priority == 0 ? Status() : target.SetPriority(priority);
}

Status ForwardParameter(TRITONBACKEND_Request* client, uint32_t index, InferRequest& target) {
  const char* key = nullptr;
  TRITONSERVER_ParameterType type;
  const void* value = nullptr;
  NEREID_RETURN_IF_ERROR(
      ToStatus(TRITONBACKEND_RequestParameter(client, index, &key, &type, &value)));
  switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
      return target.SetParameter(key, static_cast<const char*>(value));
    case TRITONSERVER_PARAMETER_INT:
      return target.SetParameter(key, *static_cast<const int64_t*>(value));
    case TRITONSERVER_PARAMETER_BOOL:
      return target.SetParameter(key, *static_cast<const bool*>(value));
    case TRITONSERVER_PARAMETER_DOUBLE:
      return target.SetParameter(key, *static_cast<const double*>(value));
    default:
      return UnsupportedError("parameter '", key, "': type ", static_cast<int>(type),
                              " cannot be passed on to a step");
  }
}

}  // namespace

bool HasAttributes(TRITONBACKEND_Request* client) {
  const char* id = "";
  uint32_t flags = 0, num_parameters = 0;
  uint64_t correlation_id = 0, priority = 0, timeout_us = 0;
  const bool is_readable =
      ToStatus(TRITONBACKEND_RequestId(client, &id)).ok() &&
      ToStatus(TRITONBACKEND_RequestFlags(client, &flags)).ok() &&
      ToStatus(TRITONBACKEND_RequestCorrelationId(client, &correlation_id)).ok() &&
      ToStatus(PriorityOf(client, &priority)).ok() &&
      ToStatus(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(client, &timeout_us)).ok() &&
      ToStatus(TRITONBACKEND_RequestParameterCount(client, &num_parameters)).ok();
  return !is_readable || id[0] != '\0' || flags != 0 || correlation_id != 0 || priority != 0 ||
         timeout_us != 0 || num_parameters != 0;
}

Status ForwardAttributes(TRITONBACKEND_Request* client, InferRequest& target) {
  const char* id = "";
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestId(client, &id)));
  if (id[0] != '\0') NEREID_RETURN_IF_ERROR(target.SetId(id));
  uint32_t flags = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestFlags(client, &flags)));
  if (flags != 0) NEREID_RETURN_IF_ERROR(target.SetFlags(flags));
  NEREID_RETURN_IF_ERROR(ForwardCorrelationId(client, target));
  NEREID_RETURN_IF_ERROR(ForwardPriority(client, target));
  uint64_t timeout_us = 0;
  NEREID_RETURN_IF_ERROR(
      ToStatus(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(client, &timeout_us)));
  if (timeout_us != 0) NEREID_RETURN_IF_ERROR(target.SetTimeoutUs(timeout_us));
  uint32_t num_parameters = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestParameterCount(client, &num_parameters)));
  for (uint32_t i = 0; i < num_parameters; ++i) {
    NEREID_RETURN_IF_ERROR(ForwardParameter(client, i, target));
  }
  return {};
}

}  // namespace nereid::ensemble
