// TRITONSERVER_InferenceTrace. Nothing makes traces yet: the constructors answer UNSUPPORTED, so
// no caller ever holds one, and everything else says so too. [any thread]
#include "capi/handles.h"

#define NEREID_NO_TRACE(function, ...)                                                        \
  TRITONSERVER_Error* function(__VA_ARGS__) {                                                 \
    return nereid::ToError(                                                                   \
        nereid::UnsupportedError(#function ": tracing is not supported by this server yet")); \
  }

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

NEREID_NO_TRACE(TRITONSERVER_InferenceTraceNew, TRITONSERVER_InferenceTrace**,
                TRITONSERVER_InferenceTraceLevel, uint64_t, TRITONSERVER_InferenceTraceActivityFn_t,
                TRITONSERVER_InferenceTraceReleaseFn_t, void*)
NEREID_NO_TRACE(TRITONSERVER_InferenceTraceTensorNew, TRITONSERVER_InferenceTrace**,
                TRITONSERVER_InferenceTraceLevel, uint64_t, TRITONSERVER_InferenceTraceActivityFn_t,
                TRITONSERVER_InferenceTraceTensorActivityFn_t,
                TRITONSERVER_InferenceTraceReleaseFn_t, void*)
NEREID_NO_TRACE(TRITONSERVER_InferenceTraceReportActivity, TRITONSERVER_InferenceTrace*, uint64_t,
                const char*)
NEREID_NO_TRACE(TRITONSERVER_InferenceTraceDelete, TRITONSERVER_InferenceTrace*)
NEREID_NO_TRACE(TRITONSERVER_InferenceTraceId, TRITONSERVER_InferenceTrace*, uint64_t*)
NEREID_NO_TRACE(TRITONSERVER_InferenceTraceParentId, TRITONSERVER_InferenceTrace*, uint64_t*)
NEREID_NO_TRACE(TRITONSERVER_InferenceTraceModelName, TRITONSERVER_InferenceTrace*, const char**)
NEREID_NO_TRACE(TRITONSERVER_InferenceTraceModelVersion, TRITONSERVER_InferenceTrace*, int64_t*)
NEREID_NO_TRACE(TRITONSERVER_InferenceTraceRequestId, TRITONSERVER_InferenceTrace*, const char**)
NEREID_NO_TRACE(TRITONSERVER_InferenceTraceSpawnChildTrace, TRITONSERVER_InferenceTrace*,
                TRITONSERVER_InferenceTrace**)
NEREID_NO_TRACE(TRITONSERVER_InferenceTraceSetContext, TRITONSERVER_InferenceTrace*, const char*)
NEREID_NO_TRACE(TRITONSERVER_InferenceTraceContext, TRITONSERVER_InferenceTrace*, const char**)

}  // extern "C"
