// TRITONSERVER_InferenceTrace: created by a client or spawned by a backend, passed to
// ServerInferAsync. [any thread]
#include "host/core/observe/trace.h"

#include "host/core/capi/handles.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::InferenceTrace;
using nereid::core::ToHandle;

extern "C" {

const char* TRITONSERVER_InferenceTraceLevelString(TRITONSERVER_InferenceTraceLevel level) {
  switch (level) {
    case TRITONSERVER_TRACE_LEVEL_DISABLED:
      return "DISABLED";
    case TRITONSERVER_TRACE_LEVEL_MIN:
      return "MIN";
    case TRITONSERVER_TRACE_LEVEL_MAX:
      return "MAX";
    case TRITONSERVER_TRACE_LEVEL_TIMESTAMPS:
      return "TIMESTAMPS";
    case TRITONSERVER_TRACE_LEVEL_TENSORS:
      return "TENSORS";
  }
  return "<unknown>";
}

const char* TRITONSERVER_InferenceTraceActivityString(
    TRITONSERVER_InferenceTraceActivity activity) {
  switch (activity) {
    case TRITONSERVER_TRACE_REQUEST_START:
      return "REQUEST_START";
    case TRITONSERVER_TRACE_QUEUE_START:
      return "QUEUE_START";
    case TRITONSERVER_TRACE_COMPUTE_START:
      return "COMPUTE_START";
    case TRITONSERVER_TRACE_COMPUTE_INPUT_END:
      return "COMPUTE_INPUT_END";
    case TRITONSERVER_TRACE_COMPUTE_OUTPUT_START:
      return "COMPUTE_OUTPUT_START";
    case TRITONSERVER_TRACE_COMPUTE_END:
      return "COMPUTE_END";
    case TRITONSERVER_TRACE_REQUEST_END:
      return "REQUEST_END";
    case TRITONSERVER_TRACE_TENSOR_QUEUE_INPUT:
      return "TENSOR_QUEUE_INPUT";
    case TRITONSERVER_TRACE_TENSOR_BACKEND_INPUT:
      return "TENSOR_BACKEND_INPUT";
    case TRITONSERVER_TRACE_TENSOR_BACKEND_OUTPUT:
      return "TENSOR_BACKEND_OUTPUT";
    case TRITONSERVER_TRACE_CUSTOM_ACTIVITY:
      return "CUSTOM_ACTIVITY";
  }
  return "<unknown>";
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceNew(
    TRITONSERVER_InferenceTrace** trace, TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
    TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void* trace_userp) {
  return TRITONSERVER_InferenceTraceTensorNew(trace, level, parent_id, activity_fn, nullptr,
                                              release_fn, trace_userp);
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceTensorNew(
    TRITONSERVER_InferenceTrace** trace, TRITONSERVER_InferenceTraceLevel level, uint64_t parent_id,
    TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceTensorActivityFn_t tensor_activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void* trace_userp) {
  NEREID_RETURN_IF_NULL(trace);
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(
        auto created,
        InferenceTrace::Create(static_cast<uint32_t>(level), parent_id,
                               {activity_fn, tensor_activity_fn, release_fn, trace_userp}));
    *trace = ToHandle(created.release());
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceReportActivity(TRITONSERVER_InferenceTrace* trace,
                                                              uint64_t timestamp,
                                                              const char* activity_name) {
  NEREID_RETURN_IF_NULL(trace);
  NEREID_RETURN_IF_NULL(activity_name);
  return AtCBoundary([&] {
    FromHandle(trace)->ReportCustom(timestamp, activity_name);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceDelete(TRITONSERVER_InferenceTrace* trace) {
  if (trace == nullptr) return nullptr;
  return AtCBoundary([&]() -> Status {
    InferenceTrace* object = FromHandle(trace);
    if (object->in_flight()) {
      return nereid::InvalidArgError("trace ", object->id(),
                                     ": cannot be deleted while its inference is in flight");
    }
    delete object;
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceId(TRITONSERVER_InferenceTrace* trace,
                                                  uint64_t* id) {
  NEREID_RETURN_IF_NULL(trace);
  NEREID_RETURN_IF_NULL(id);
  *id = FromHandle(trace)->id();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceParentId(TRITONSERVER_InferenceTrace* trace,
                                                        uint64_t* parent_id) {
  NEREID_RETURN_IF_NULL(trace);
  NEREID_RETURN_IF_NULL(parent_id);
  *parent_id = FromHandle(trace)->parent_id();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceModelName(TRITONSERVER_InferenceTrace* trace,
                                                         const char** model_name) {
  NEREID_RETURN_IF_NULL(trace);
  NEREID_RETURN_IF_NULL(model_name);
  *model_name = FromHandle(trace)->model_name().c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceModelVersion(TRITONSERVER_InferenceTrace* trace,
                                                            int64_t* model_version) {
  NEREID_RETURN_IF_NULL(trace);
  NEREID_RETURN_IF_NULL(model_version);
  *model_version = FromHandle(trace)->model_version();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceRequestId(TRITONSERVER_InferenceTrace* trace,
                                                         const char** request_id) {
  NEREID_RETURN_IF_NULL(trace);
  NEREID_RETURN_IF_NULL(request_id);
  *request_id = FromHandle(trace)->request_id().c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceSpawnChildTrace(
    TRITONSERVER_InferenceTrace* trace, TRITONSERVER_InferenceTrace** child_trace) {
  NEREID_RETURN_IF_NULL(trace);
  NEREID_RETURN_IF_NULL(child_trace);
  return AtCBoundary([&] {
    *child_trace = ToHandle(FromHandle(trace)->SpawnChild().release());
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceSetContext(TRITONSERVER_InferenceTrace* trace,
                                                          const char* trace_context) {
  NEREID_RETURN_IF_NULL(trace);
  NEREID_RETURN_IF_NULL(trace_context);
  return AtCBoundary([&] {
    FromHandle(trace)->set_context(trace_context);
    return Status::Ok();
  });
}

// The text is valid until the context changes.
TRITONSERVER_Error* TRITONSERVER_InferenceTraceContext(TRITONSERVER_InferenceTrace* trace,
                                                       const char** trace_context) {
  NEREID_RETURN_IF_NULL(trace);
  NEREID_RETURN_IF_NULL(trace_context);
  *trace_context = FromHandle(trace)->context();
  return nullptr;
}

}  // extern "C"
