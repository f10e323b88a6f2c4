// TRITONBACKEND_Request: the contents of a request and its release. Returned pointers are valid
// until the release. [instance thread; release: any thread]
#include "host/core/capi/handles.h"
#include "host/core/observe/trace.h"
#include "host/core/request/infer_request.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::InferRequest;
using nereid::core::ResponseCallbacks;
using nereid::core::ToHandle;

namespace {

Status CheckRequestIndex(const char* what, uint32_t index, size_t count) {
  if (index < count) return Status::Ok();
  return nereid::InvalidArgError("out of bounds index ", index, ": request has ", count, " ", what);
}

template <typename Id>
TRITONSERVER_Error* GetCorrelationId(const InferRequest& request, const char* kind, Id* id) {
  return AtCBoundary([&]() -> Status {
    if (request.GetCorrelationId(id).ok()) return Status::Ok();
    return nereid::InvalidArgError(request.LogPrefix(), "correlation ID in request is not ", kind);
  });
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_RequestId(TRITONBACKEND_Request* request, const char** id) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(id);
  *id = FromHandle(request)->id().c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request* request,
                                                     bool* is_cancelled) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(is_cancelled);
  *is_cancelled = FromHandle(request)->IsCancelled();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request* request,
                                                       uint64_t* id) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(id);
  return GetCorrelationId(*FromHandle(request), "an unsigned int", id);
}

TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationIdString(TRITONBACKEND_Request* request,
                                                             const char** id) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(id);
  return GetCorrelationId(*FromHandle(request), "a string", id);
}

TRITONSERVER_Error* TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    TRITONBACKEND_Request* request, uint64_t* timeout) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(timeout);
  *timeout = FromHandle(request)->timeout_us();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestFlags(TRITONBACKEND_Request* request, uint32_t* flags) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(flags);
  *flags = FromHandle(request)->flags();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request* request,
                                                        uint32_t* count) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(count);
  *count = static_cast<uint32_t>(FromHandle(request)->parameters().size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestParameter(TRITONBACKEND_Request* request,
                                                   const uint32_t index, const char** key,
                                                   TRITONSERVER_ParameterType* type,
                                                   const void** vvalue) {
  NEREID_RETURN_IF_DELETED(request);
  return AtCBoundary([&]() -> Status {
    const auto& parameters = FromHandle(request)->parameters();
    NEREID_RETURN_IF_ERROR(CheckRequestIndex("parameters", index, parameters.size()));
    if (key != nullptr) *key = parameters[index].name().c_str();
    if (type != nullptr) *type = parameters[index].type();
    if (vvalue != nullptr) *vvalue = parameters[index].pointer();
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request,
                                                    uint32_t* count) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(count);
  *count = static_cast<uint32_t>(FromHandle(request)->num_inputs());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputName(TRITONBACKEND_Request* request,
                                                   const uint32_t index, const char** input_name) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(input_name);
  *input_name = nullptr;
  return AtCBoundary([&]() -> Status {
    InferRequest* object = FromHandle(request);
    NEREID_RETURN_IF_ERROR(CheckRequestIndex("inputs", index, object->num_inputs()));
    *input_name = object->input(index).name.c_str();
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_RequestInput(TRITONBACKEND_Request* request, const char* name,
                                               TRITONBACKEND_Input** input) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(name);
  NEREID_RETURN_IF_NULL(input);
  *input = nullptr;
  return AtCBoundary([&]() -> Status {
    nereid::core::InputTensor* found = FromHandle(request)->FindInput(name);
    if (found == nullptr) {
      return nereid::InvalidArgError("unknown request input name ", name);
    }
    *input = ToHandle(found);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request* request,
                                                      const uint32_t index,
                                                      TRITONBACKEND_Input** input) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(input);
  *input = nullptr;
  return AtCBoundary([&]() -> Status {
    InferRequest* object = FromHandle(request);
    NEREID_RETURN_IF_ERROR(CheckRequestIndex("inputs", index, object->num_inputs()));
    *input = ToHandle(&object->input(index));
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request,
                                                     uint32_t* count) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(count);
  *count = static_cast<uint32_t>(FromHandle(request)->num_outputs());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request,
                                                    const uint32_t index,
                                                    const char** output_name) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(output_name);
  *output_name = nullptr;
  return AtCBoundary([&]() -> Status {
    const InferRequest* object = FromHandle(request);
    NEREID_RETURN_IF_ERROR(CheckRequestIndex("outputs", index, object->num_outputs()));
    *output_name = object->output_name(index).c_str();
    return Status::Ok();
  });
}

// Queries the client's allocator for the preferred memory of an output. UNAVAILABLE if the
// allocator has no query function.
TRITONSERVER_Error* TRITONBACKEND_RequestOutputBufferProperties(
    TRITONBACKEND_Request* request, const char* name, size_t* byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(name);
  NEREID_RETURN_IF_NULL(memory_type);
  NEREID_RETURN_IF_NULL(memory_type_id);
  return AtCBoundary([&]() -> Status {
    const nereid::core::ResponseSink& sink = *FromHandle(request)->sink();
    if (sink.has_ended()) {  // the client may have deleted its allocator
      return nereid::InvalidArgError(FromHandle(request)->LogPrefix(), "output '", name,
                                     "': the final response of the request was sent before");
    }
    const ResponseCallbacks& callbacks = sink.callbacks();
    if (callbacks.allocator->query_fn == nullptr) {
      return nereid::UnavailableError(
          "Output properties are not available: the client's allocator "
          "has no query function");
    }
    return nereid::core::TakeError(callbacks.allocator->query_fn(
        ToHandle(const_cast<nereid::core::ResponseAllocator*>(callbacks.allocator)),
        callbacks.allocator_userp, name, byte_size, memory_type, memory_type_id));
  });
}

// On error the backend keeps the request.
TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request,
                                                 uint32_t release_flags) {
  NEREID_RETURN_IF_DELETED(request);
  return AtCBoundary([&]() -> Status {
    InferRequest* object = FromHandle(request);
    const bool again = release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE;
    if (again && !object->schema().iterative_sequence) {
      return nereid::InvalidArgError(
          "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is "
          "not configured to handle such a flag");
    }
    if (!again && release_flags != TRITONSERVER_REQUEST_RELEASE_ALL) {
      return nereid::InvalidArgError(object->LogPrefix(), "release flags: expected ",
                                     static_cast<int>(TRITONSERVER_REQUEST_RELEASE_ALL), ", got ",
                                     release_flags);
    }
    if (!object->in_flight()) {
      return nereid::InvalidArgError(object->LogPrefix(), "request was released before");
    }
    object->Release(release_flags);
    return Status::Ok();
  });
}

// Sets *trace to null if the request is not traced.
TRITONSERVER_Error* TRITONBACKEND_RequestTrace(TRITONBACKEND_Request* request,
                                               TRITONSERVER_InferenceTrace** trace) {
  NEREID_RETURN_IF_DELETED(request);
  NEREID_RETURN_IF_NULL(trace);
  nereid::core::InferenceTrace* object = FromHandle(request)->trace();
  *trace = object == nullptr ? nullptr : ToHandle(object);
  return nullptr;
}

}  // extern "C"
