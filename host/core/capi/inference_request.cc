// TRITONSERVER_InferenceRequest: construction of a request. [client thread]
#include "host/core/request/failed_request_log.h"
#include "host/core/request/infer_request.h"

#include "host/core/capi/handles.h"
#include "host/core/model/model.h"
#include "host/core/observe/trace.h"
#include "host/core/server.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::BufferAttributes;
using nereid::core::CorrelationId;
using nereid::core::FromHandle;
using nereid::core::InferRequest;
using nereid::core::Parameter;
using nereid::core::ToHandle;

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

TRITONSERVER_Error* Start(TRITONSERVER_Server* server,
                          TRITONSERVER_InferenceRequest* inference_request,
                          TRITONSERVER_InferenceTrace* trace) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_DELETED(inference_request);
  return nereid::core::AtCBoundary([&]() -> Status {
    InferRequest* request = FromHandle(inference_request);
    const nereid::core::Caller caller = nereid::core::CallerOf(server);
    NEREID_RETURN_IF_ERROR(FromHandle(server)->CheckAcceptsRequest(*request, caller));
    const Status prepared = request->Prepare(trace == nullptr ? nullptr : FromHandle(trace));
    const bool is_client = caller == nereid::core::Caller::kClient;
    if (!prepared.ok() && is_client) {
      nereid::core::LogFailedRequest(request->schema().model_name, request->id(), prepared);
    }
    NEREID_RETURN_IF_ERROR(prepared);
    if (is_client) request->sink()->LogFailures();
    // The response may arrive, and the client may delete the request, before Enqueue returns.
    const auto target = request->target();
    Status status = target->Enqueue(request);
    if (!status.ok()) {
      request->Unprepare();
      if (is_client) {
        nereid::core::LogFailedRequest(request->schema().model_name, request->id(), status);
      }
    }
    return status;
  });
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONSERVER_InferenceRequestNew(
    TRITONSERVER_InferenceRequest** inference_request, TRITONSERVER_Server* server,
    const char* model_name, const int64_t model_version) {
  NEREID_RETURN_IF_NULL(inference_request);
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(std::shared_ptr<nereid::core::Model> model,
                            FromHandle(server)->models().Find(model_name, model_version));
    *inference_request = ToHandle(new InferRequest(std::move(model), model_version));
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestDelete(
    TRITONSERVER_InferenceRequest* inference_request) {
  if (inference_request == nullptr) return nullptr;
  NEREID_RETURN_IF_DELETED(inference_request);
  return AtCBoundary([&] { return InferRequest::Delete(FromHandle(inference_request)); });
}

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

TRITONSERVER_Error* TRITONSERVER_InferenceRequestCancel(
    TRITONSERVER_InferenceRequest* inference_request) {
  NEREID_RETURN_IF_DELETED(inference_request);
  return AtCBoundary([&] { return FromHandle(inference_request)->Cancel(); });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestIsCancelled(
    TRITONSERVER_InferenceRequest* inference_request, bool* is_cancelled) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(is_cancelled);
  return AtCBoundary([&]() -> Status {
    const InferRequest& request = *FromHandle(inference_request);
    NEREID_RETURN_IF_ERROR(request.CheckWasPrepared("query cancellation status"));
    *is_cancelled = request.IsCancelled();
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

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest* inference_request,
    TRITONSERVER_InferenceRequestReleaseFn_t request_release_fn, void* request_release_userp) {
  NEREID_RETURN_IF_DELETED(inference_request);
  FromHandle(inference_request)->set_release_callback(request_release_fn, request_release_userp);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest* inference_request,
    TRITONSERVER_ResponseAllocator* response_allocator, void* response_allocator_userp,
    TRITONSERVER_InferenceResponseCompleteFn_t response_fn, void* response_userp) {
  NEREID_RETURN_IF_DELETED(inference_request);
  NEREID_RETURN_IF_NULL(response_allocator);
  NEREID_RETURN_IF_NULL(response_fn);
  FromHandle(inference_request)
      ->set_response_callbacks(
          {FromHandle(response_allocator), response_allocator_userp, response_fn, response_userp});
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

// On error the caller keeps the request and none of its callbacks is called. The trace is released
// before this function returns.
TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(TRITONSERVER_Server* server,
                                                  TRITONSERVER_InferenceRequest* inference_request,
                                                  TRITONSERVER_InferenceTrace* trace) {
  TRITONSERVER_Error* const error = Start(server, inference_request, trace);
  if (error != nullptr && trace != nullptr) FromHandle(trace)->EndIfUnused();
  return error;
}

}  // extern "C"
