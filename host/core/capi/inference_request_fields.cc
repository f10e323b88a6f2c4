// TRITONSERVER_InferenceRequest: what a client fills in. [client thread]
#include "host/core/capi/handles.h"
#include "host/core/request/infer_request.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::BufferAttributes;
using nereid::core::CorrelationId;
using nereid::core::FromHandle;
using nereid::core::Parameter;

namespace {

TRITONSERVER_Error* AppendData(TRITONSERVER_InferenceRequest* request, const char* name,
                               const void* base, const BufferAttributes& attributes,
                               const char* host_policy) {
  return AtCBoundary(
      [&] { return FromHandle(request)->AppendInputData(name, base, attributes, host_policy); });
}

TRITONSERVER_Error* AddParameter(TRITONSERVER_InferenceRequest* request, const char* key,
                                 Parameter::Value value) {
  return AtCBoundary([&] {
    FromHandle(request)->parameters().emplace_back(key, std::move(value));
    return Status::Ok();
  });
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONSERVER_InferenceRequestId(
    TRITONSERVER_InferenceRequest* inference_request, const char** id) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(id);
  *id = FromHandle(inference_request)->id().c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetId(
    TRITONSERVER_InferenceRequest* inference_request, const char* id) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(id);
  return AtCBoundary([&] {
    FromHandle(inference_request)->set_id(id);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestFlags(
    TRITONSERVER_InferenceRequest* inference_request, uint32_t* flags) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(flags);
  *flags = FromHandle(inference_request)->flags();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetFlags(
    TRITONSERVER_InferenceRequest* inference_request, uint32_t flags) {
  NEREID_RETURN_IF_DELETED(inference_request);
  FromHandle(inference_request)->set_flags(flags);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestCorrelationId(
    TRITONSERVER_InferenceRequest* inference_request, uint64_t* correlation_id) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(correlation_id);
  return AtCBoundary(
      [&] { return FromHandle(inference_request)->GetCorrelationId(correlation_id); });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestCorrelationIdString(
    TRITONSERVER_InferenceRequest* inference_request, const char** correlation_id) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(correlation_id);
  return AtCBoundary(
      [&] { return FromHandle(inference_request)->GetCorrelationId(correlation_id); });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetCorrelationId(
    TRITONSERVER_InferenceRequest* inference_request, uint64_t correlation_id) {
  NEREID_RETURN_IF_DELETED(inference_request);
  FromHandle(inference_request)->set_correlation_id(CorrelationId(correlation_id));
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetCorrelationIdString(
    TRITONSERVER_InferenceRequest* inference_request, const char* correlation_id) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(correlation_id);
  return AtCBoundary([&]() -> Status {
    constexpr size_t kMaxLength = 128;
    std::string id = correlation_id;
    if (id.size() > kMaxLength) {
      return nereid::UnsupportedError("string correlation ID cannot be longer than ", kMaxLength,
                                      " characters");
    }
    FromHandle(inference_request)->set_correlation_id(CorrelationId(std::move(id)));
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestPriority(
    TRITONSERVER_InferenceRequest* inference_request, uint32_t* priority) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(priority);
  *priority = static_cast<uint32_t>(FromHandle(inference_request)->priority());
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestPriorityUInt64(
    TRITONSERVER_InferenceRequest* inference_request, uint64_t* priority) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(priority);
  *priority = FromHandle(inference_request)->priority();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetPriority(
    TRITONSERVER_InferenceRequest* inference_request, uint32_t priority) {
  return TRITONSERVER_InferenceRequestSetPriorityUInt64(inference_request, priority);
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetPriorityUInt64(
    TRITONSERVER_InferenceRequest* inference_request, uint64_t priority) {
  NEREID_RETURN_IF_DELETED(inference_request);
  FromHandle(inference_request)->set_priority(priority);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestTimeoutMicroseconds(
    TRITONSERVER_InferenceRequest* inference_request, uint64_t* timeout_us) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(timeout_us);
  *timeout_us = FromHandle(inference_request)->timeout_us();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(
    TRITONSERVER_InferenceRequest* inference_request, uint64_t timeout_us) {
  NEREID_RETURN_IF_DELETED(inference_request);
  FromHandle(inference_request)->set_timeout_us(timeout_us);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddInput(
    TRITONSERVER_InferenceRequest* inference_request, const char* name,
    const TRITONSERVER_DataType datatype, const int64_t* shape, uint64_t dim_count) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(name);
  if (dim_count > 0) NEREID_RETURN_IF_NULL(shape);
  return AtCBoundary([&] {
    return FromHandle(inference_request)
        ->AddInput(name, static_cast<nereid::DataType>(datatype), {shape, dim_count});
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRawInput(
    TRITONSERVER_InferenceRequest* inference_request, const char* name) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(name);
  return AtCBoundary([&] { return FromHandle(inference_request)->AddRawInput(name); });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveInput(
    TRITONSERVER_InferenceRequest* inference_request, const char* name) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(name);
  return AtCBoundary([&] { return FromHandle(inference_request)->RemoveInput(name); });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllInputs(
    TRITONSERVER_InferenceRequest* inference_request) {
  NEREID_RETURN_IF_DELETED(inference_request);
  FromHandle(inference_request)->RemoveAllInputs();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputData(
    TRITONSERVER_InferenceRequest* inference_request, const char* name, const void* base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(name);
  return AppendData(inference_request, name, base,
                    {byte_size, memory_type, memory_type_id, nullptr}, nullptr);
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    TRITONSERVER_InferenceRequest* inference_request, const char* name, const void* base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id,
    const char* host_policy_name) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(name);
  NEREID_RETURN_IF_NULL(host_policy_name);
  return AppendData(inference_request, name, base,
                    {byte_size, memory_type, memory_type_id, nullptr}, host_policy_name);
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
    TRITONSERVER_InferenceRequest* inference_request, const char* name, const void* base,
    TRITONSERVER_BufferAttributes* buffer_attributes) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(name);
  NEREID_RETURN_IF_NULL(buffer_attributes);
  return AppendData(inference_request, name, base, *FromHandle(buffer_attributes), nullptr);
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllInputData(
    TRITONSERVER_InferenceRequest* inference_request, const char* name) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(name);
  return AtCBoundary([&] { return FromHandle(inference_request)->RemoveAllInputData(name); });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRequestedOutput(
    TRITONSERVER_InferenceRequest* inference_request, const char* name) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(name);
  return AtCBoundary([&] { return FromHandle(inference_request)->AddRequestedOutput(name); });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveRequestedOutput(
    TRITONSERVER_InferenceRequest* inference_request, const char* name) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(name);
  FromHandle(inference_request)->RemoveRequestedOutput(name);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(
    TRITONSERVER_InferenceRequest* inference_request) {
  NEREID_RETURN_IF_DELETED(inference_request);
  FromHandle(inference_request)->RemoveAllRequestedOutputs();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetStringParameter(
    TRITONSERVER_InferenceRequest* request, const char* key, const char* value) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(key);
  NEREID_RETURN_IF_NULL(value);
  return AddParameter(request, key, std::string(value));
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetIntParameter(
    TRITONSERVER_InferenceRequest* request, const char* key, const int64_t value) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(key);
  return AddParameter(request, key, value);
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetBoolParameter(
    TRITONSERVER_InferenceRequest* request, const char* key, const bool value) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(key);
  return AddParameter(request, key, value);
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetDoubleParameter(
    TRITONSERVER_InferenceRequest* request, const char* key, const double value) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(key);
  return AddParameter(request, key, value);
}

}  // extern "C"
