// The server API: what callers of models use (frontends, embedders, the ensemble) and the types
// that all four headers share. C99 and C++.
//
// Rules that hold for every function here:
//  - One that returns `struct TRITONSERVER_Error*` returns null on success; otherwise the caller
//    owns the error (ErrorDelete). Out parameters are written on success only.
//  - Handles are opaque, made by a New function and given up to the Delete of their family, unless
//    a call is said to take them over. A handle is never null unless marked optional.
//  - Strings are UTF-8, end with NUL, and are copied when they go in. One that comes out belongs to
//    the object it was asked from, and dies with it.
//  - Any thread may call any function; one object is used by one thread at a time, except where its
//    family says otherwise. No C++ exception crosses, in either direction.
//  - Host and plug-in must agree on the major version; a plug-in accepts a host whose minor version
//    is its own or later.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// On what the host exports.
#define TRITONSERVER_DECLSPEC __attribute__((visibility("default")))

// Of this header; see TRITONSERVER_ApiVersion.
#define TRITONSERVER_API_VERSION_MAJOR 1
#define TRITONSERVER_API_VERSION_MINOR 34

// Opaque handles.
struct TRITONSERVER_BufferAttributes;
struct TRITONSERVER_Error;
struct TRITONSERVER_InferenceRequest;
struct TRITONSERVER_InferenceResponse;
struct TRITONSERVER_InferenceTrace;
struct TRITONSERVER_Message;
struct TRITONSERVER_Metrics;
struct TRITONSERVER_Parameter;
struct TRITONSERVER_ResponseAllocator;
struct TRITONSERVER_Server;
struct TRITONSERVER_ServerOptions;
struct TRITONSERVER_Metric;
struct TRITONSERVER_MetricFamily;
struct TRITONSERVER_MetricArgs;

// ---- Types
//
// Values cross the border as 32-bit integers (enums) and one byte (bool).

// The type of a tensor's elements. BYTES elements differ in size: each is a 4-byte little-endian
// length and that many bytes. BOOL is one byte, 0 or 1. Elements are little-endian, rows first.
typedef enum TRITONSERVER_datatype_enum {
  TRITONSERVER_TYPE_INVALID = 0,
  TRITONSERVER_TYPE_BOOL = 1,
  TRITONSERVER_TYPE_UINT8 = 2,
  TRITONSERVER_TYPE_UINT16 = 3,
  TRITONSERVER_TYPE_UINT32 = 4,
  TRITONSERVER_TYPE_UINT64 = 5,
  TRITONSERVER_TYPE_INT8 = 6,
  TRITONSERVER_TYPE_INT16 = 7,
  TRITONSERVER_TYPE_INT32 = 8,
  TRITONSERVER_TYPE_INT64 = 9,
  TRITONSERVER_TYPE_FP16 = 10,
  TRITONSERVER_TYPE_FP32 = 11,
  TRITONSERVER_TYPE_FP64 = 12,
  TRITONSERVER_TYPE_BYTES = 13,
  TRITONSERVER_TYPE_BF16 = 14,
} TRITONSERVER_DataType;

// Where a buffer lies. The memory type id is the device of GPU memory and 0 otherwise.
typedef enum TRITONSERVER_memorytype_enum {
  TRITONSERVER_MEMORY_CPU = 0,
  TRITONSERVER_MEMORY_CPU_PINNED = 1,  // page-locked: quicker for a device
  TRITONSERVER_MEMORY_GPU = 2,
} TRITONSERVER_MemoryType;

// Of the value behind a `const void*`: STRING a `const char*` itself; INT, BOOL and DOUBLE
// pointers to int64_t, bool and double; BYTES, only in ParameterBytesNew, a buffer.
typedef enum TRITONSERVER_parametertype_enum {
  TRITONSERVER_PARAMETER_STRING = 0,
  TRITONSERVER_PARAMETER_INT = 1,
  TRITONSERVER_PARAMETER_BOOL = 2,
  TRITONSERVER_PARAMETER_DOUBLE = 3,
  TRITONSERVER_PARAMETER_BYTES = 4,
} TRITONSERVER_ParameterType;

// Where a model instance runs: AUTO leaves it to the host, MODEL to the model itself.
typedef enum TRITONSERVER_instancegroupkind_enum {
  TRITONSERVER_INSTANCEGROUPKIND_AUTO = 0,
  TRITONSERVER_INSTANCEGROUPKIND_CPU = 1,
  TRITONSERVER_INSTANCEGROUPKIND_GPU = 2,
  TRITONSERVER_INSTANCEGROUPKIND_MODEL = 3,
} TRITONSERVER_InstanceGroupKind;

// Frontends map them to HTTP and gRPC statuses.
typedef enum TRITONSERVER_errorcode_enum {
  TRITONSERVER_ERROR_UNKNOWN = 0,         // no better code is known
  TRITONSERVER_ERROR_INTERNAL = 1,        // a fault of the host or of a backend
  TRITONSERVER_ERROR_NOT_FOUND = 2,       // the named thing does not exist
  TRITONSERVER_ERROR_INVALID_ARG = 3,     // the caller's input is wrong; the same call fails again
  TRITONSERVER_ERROR_UNAVAILABLE = 4,     // not now: not loaded, queue full, out of memory
  TRITONSERVER_ERROR_UNSUPPORTED = 5,     // valid, but this host or model cannot do it
  TRITONSERVER_ERROR_ALREADY_EXISTS = 6,  // the name or the buffer is taken
  TRITONSERVER_ERROR_CANCELLED = 7,       // the caller gave up
} TRITONSERVER_Error_Code;

// The host's version of this API.
//   major, minor  out
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ApiVersion(uint32_t* major,
                                                                         uint32_t* minor);

// The name, as protocols spell it ("FP32", "BYTES"); "<invalid>" for other values. Static.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_DataTypeString(TRITONSERVER_DataType datatype);

// The inverse of DataTypeString; TRITONSERVER_TYPE_INVALID for an unknown name.
TRITONSERVER_DECLSPEC TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char* dtype);

// Bytes of one element; 0 for BYTES and INVALID.
TRITONSERVER_DECLSPEC uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType datatype);

// The name ("CPU", "CPU_PINNED", "GPU"); "<invalid>" for other values. Static.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_MemoryTypeString(TRITONSERVER_MemoryType memtype);

// The name ("STRING", "INT", ...); "<invalid>" for other values. Static.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_ParameterTypeString(
    TRITONSERVER_ParameterType paramtype);

// The name ("CPU", "GPU", ...); "<invalid>" for other values. Static.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_InstanceGroupKindString(
    TRITONSERVER_InstanceGroupKind kind);

// ---- Errors

// Makes an error that the caller owns. Never null.
//   msg  copied
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code,
                                                                       const char* msg);

// Gives an error up.
//   error  optional: null is allowed and does nothing
TRITONSERVER_DECLSPEC void TRITONSERVER_ErrorDelete(struct TRITONSERVER_Error* error);

// The error's code.
TRITONSERVER_DECLSPEC TRITONSERVER_Error_Code
TRITONSERVER_ErrorCode(struct TRITONSERVER_Error* error);

// The code's name ("Invalid argument", "Not found", ...). Static.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_ErrorCodeString(struct TRITONSERVER_Error* error);

// Lives as long as the error.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_ErrorMessage(struct TRITONSERVER_Error* error);

// ---- Parameters
//
// Named values of a caller's: overrides of a model load, labels of a metric.

// Makes a parameter that the caller owns; null when type is BYTES or not a type.
//   name   copied
//   value  as TRITONSERVER_ParameterType says; copied
TRITONSERVER_DECLSPEC struct TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(
    const char* name, const TRITONSERVER_ParameterType type, const void* value);

// Makes a BYTES parameter that the caller owns.
//   byte_ptr  referenced, not copied: outlives the parameter
TRITONSERVER_DECLSPEC struct TRITONSERVER_Parameter* TRITONSERVER_ParameterBytesNew(
    const char* name, const void* byte_ptr, const uint64_t size);

// Gives a parameter up.
TRITONSERVER_DECLSPEC void TRITONSERVER_ParameterDelete(struct TRITONSERVER_Parameter* parameter);

// ---- Log
//
// One log a process, set up by the server's options. Callable from any thread at any time,
// before a server exists too.

// Kinds of lines; each is switched on or off by itself.
typedef enum TRITONSERVER_loglevel_enum {
  TRITONSERVER_LOG_INFO = 0,
  TRITONSERVER_LOG_WARN = 1,
  TRITONSERVER_LOG_ERROR = 2,
  TRITONSERVER_LOG_VERBOSE = 3,
} TRITONSERVER_LogLevel;

// DEFAULT: `I0131 23:59:59.123456 <pid> <file>:<line>] "<message>"`; ISO8601: the time as
// 2024-01-31T23:59:59Z.
typedef enum TRITONSERVER_logformat_enum {
  TRITONSERVER_LOG_DEFAULT = 0,
  TRITONSERVER_LOG_ISO8601 = 1,
} TRITONSERVER_LogFormat;

// Whether lines of this level are written: ask before making a costly message.
TRITONSERVER_DECLSPEC bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level);

// Writes one line if its level is enabled.
//   filename, line  where the message comes from; the host keeps the last part of the path
//   Errors: INVALID_ARG, unknown level.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_LogMessage(
    TRITONSERVER_LogLevel level, const char* filename, const int line, const char* msg);

// ---- Messages
//
// A JSON document handed over whole.

// Parses and copies the text.
//   message  out; the caller's
//   Errors: INVALID_ARG, not JSON.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(
    struct TRITONSERVER_Message** message, const char* base, size_t byte_size);

// Gives a message up, and the text read from it.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MessageDelete(
    struct TRITONSERVER_Message* message);

// The document as text, not NUL-terminated.
//   base, byte_size  out; memory of the message, dies with it
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(
    struct TRITONSERVER_Message* message, const char** base, size_t* byte_size);

// ---- Metrics page
//
// A snapshot of every metric, made by ServerMetrics.

// The text format of Prometheus is the only one.
typedef enum tritonserver_metricformat_enum {
  TRITONSERVER_METRIC_PROMETHEUS = 0,
} TRITONSERVER_MetricFormat;

// Gives the snapshot up, and the text read from it.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricsDelete(
    struct TRITONSERVER_Metrics* metrics);

// The snapshot as text, not NUL-terminated.
//   base, byte_size  out; memory of the snapshot, dies with it
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricsFormatted(
    struct TRITONSERVER_Metrics* metrics, TRITONSERVER_MetricFormat format, const char** base,
    size_t* byte_size);

// ---- Buffer attributes
//
// Where a buffer lies, in one object. Getters write what was set, or CPU, 0, 0 and null.

// Makes attributes with the defaults above.
//   buffer_attributes  out; the caller's
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesNew(
    struct TRITONSERVER_BufferAttributes** buffer_attributes);

// Gives attributes up; the buffer itself stays.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesDelete(
    struct TRITONSERVER_BufferAttributes* buffer_attributes);

// Sets the device of GPU memory.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetMemoryTypeId(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, int64_t memory_type_id);

// Sets the kind of memory.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetMemoryType(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, TRITONSERVER_MemoryType memory_type);

// Sets the handle by which another process may open the buffer.
//   cuda_ipc_handle  a cudaIpcMemHandle_t; referenced, outlives the attributes
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetCudaIpcHandle(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, void* cuda_ipc_handle);

// Sets the size of the buffer.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetByteSize(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, size_t byte_size);

// Reads the device of GPU memory.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesMemoryTypeId(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, int64_t* memory_type_id);

// Reads the kind of memory.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesMemoryType(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, TRITONSERVER_MemoryType* memory_type);

// Reads the handle; null when none was set.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesCudaIpcHandle(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, void** cuda_ipc_handle);

// Reads the size of the buffer.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesByteSize(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, size_t* byte_size);

// ---- Response allocator
//
// How a caller supplies the memory of outputs. The functions below are the caller's; the host
// calls them while a backend makes a response, on the backend's thread, for several responses at
// once. An error that they return belongs to the host and fails the response.

// Provides the memory of one output.
//   byte_size  may be 0; the buffer may then be null
//   memory_type, memory_type_id  what the backend would like
//   userp  of InferenceRequestSetResponseCallback
//   buffer, buffer_userp, actual_memory_type, actual_memory_type_id  out; the memory is the
//       caller's and stays until the release function gets it
typedef struct TRITONSERVER_Error* (*TRITONSERVER_ResponseAllocatorAllocFn_t)(
    struct TRITONSERVER_ResponseAllocator* allocator, const char* tensor_name, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id, void* userp, void** buffer,
    void** buffer_userp, TRITONSERVER_MemoryType* actual_memory_type,
    int64_t* actual_memory_type_id);

// Completes the attributes of a buffer that the alloc function has just provided:
// buffer_attributes comes with its size and type, the function may add to it.
typedef struct TRITONSERVER_Error* (*TRITONSERVER_ResponseAllocatorBufferAttributesFn_t)(
    struct TRITONSERVER_ResponseAllocator* allocator, const char* tensor_name,
    struct TRITONSERVER_BufferAttributes* buffer_attributes, void* userp, void* buffer_userp);

// Says beforehand where an output would lie.
//   tensor_name  optional: null asks about outputs in general
//   byte_size    in, optional
//   memory_type, memory_type_id  in: what the backend would like; out: what it would get
typedef struct TRITONSERVER_Error* (*TRITONSERVER_ResponseAllocatorQueryFn_t)(
    struct TRITONSERVER_ResponseAllocator* allocator, void* userp, const char* tensor_name,
    size_t* byte_size, TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id);

// Takes the memory of one output back, when its response is deleted.
typedef struct TRITONSERVER_Error* (*TRITONSERVER_ResponseAllocatorReleaseFn_t)(
    struct TRITONSERVER_ResponseAllocator* allocator, void* buffer, void* buffer_userp,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id);

// Called once for each response, before its first output is allocated.
typedef struct TRITONSERVER_Error* (*TRITONSERVER_ResponseAllocatorStartFn_t)(
    struct TRITONSERVER_ResponseAllocator* allocator, void* userp);

// Joins the caller's functions into an allocator.
//   allocator  out; the caller's, outlives every request that names it and their responses
//   start_fn   optional
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorNew(
    struct TRITONSERVER_ResponseAllocator** allocator,
    TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn,
    TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn,
    TRITONSERVER_ResponseAllocatorStartFn_t start_fn);

// Before the first request uses the allocator.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
    struct TRITONSERVER_ResponseAllocator* allocator,
    TRITONSERVER_ResponseAllocatorBufferAttributesFn_t buffer_attributes_fn);

// Before the first request uses the allocator. Without it a backend's question about an output's
// memory is answered with UNAVAILABLE.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorSetQueryFunction(
    struct TRITONSERVER_ResponseAllocator* allocator,
    TRITONSERVER_ResponseAllocatorQueryFn_t query_fn);

// Gives an allocator up, once no request uses it.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorDelete(
    struct TRITONSERVER_ResponseAllocator* allocator);

// ---- Traces
//
// What happens to one request and when, told to the caller's functions as it happens, on the
// thread where it happens.

// Bits: several may be set.
typedef enum tritonserver_tracelevel_enum {
  TRITONSERVER_TRACE_LEVEL_DISABLED = 0,
  TRITONSERVER_TRACE_LEVEL_MIN = 1,  // former name of TIMESTAMPS
  TRITONSERVER_TRACE_LEVEL_MAX = 2,  // former name of TIMESTAMPS
  TRITONSERVER_TRACE_LEVEL_TIMESTAMPS = 4,
  TRITONSERVER_TRACE_LEVEL_TENSORS = 8,
} TRITONSERVER_InferenceTraceLevel;

// TENSOR_ activities go to the tensor function, the others to the activity function.
typedef enum tritonserver_traceactivity_enum {
  TRITONSERVER_TRACE_REQUEST_START = 0,
  TRITONSERVER_TRACE_QUEUE_START = 1,
  TRITONSERVER_TRACE_COMPUTE_START = 2,
  TRITONSERVER_TRACE_COMPUTE_INPUT_END = 3,
  TRITONSERVER_TRACE_COMPUTE_OUTPUT_START = 4,
  TRITONSERVER_TRACE_COMPUTE_END = 5,
  TRITONSERVER_TRACE_REQUEST_END = 6,
  TRITONSERVER_TRACE_TENSOR_QUEUE_INPUT = 7,
  TRITONSERVER_TRACE_TENSOR_BACKEND_INPUT = 8,
  TRITONSERVER_TRACE_TENSOR_BACKEND_OUTPUT = 9,
  TRITONSERVER_TRACE_CUSTOM_ACTIVITY = 10,
} TRITONSERVER_InferenceTraceActivity;

// Something happened to the request.
//   timestamp_ns  steady clock
typedef void (*TRITONSERVER_InferenceTraceActivityFn_t)(
    struct TRITONSERVER_InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity,
    uint64_t timestamp_ns, void* userp);

// A tensor of the request came by.
//   name, base, shape  readable during the call only
typedef void (*TRITONSERVER_InferenceTraceTensorActivityFn_t)(
    struct TRITONSERVER_InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity,
    const char* name, TRITONSERVER_DataType datatype, const void* base, size_t byte_size,
    const int64_t* shape, uint64_t dim_count, TRITONSERVER_MemoryType memory_type,
    int64_t memory_type_id, void* userp);

// The trace, and every child that was spawned from it, belongs to the caller again: delete it.
typedef void (*TRITONSERVER_InferenceTraceReleaseFn_t)(struct TRITONSERVER_InferenceTrace* trace,
                                                       void* userp);

// Static.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_InferenceTraceLevelString(
    TRITONSERVER_InferenceTraceLevel level);

// Static.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_InferenceTraceActivityString(
    TRITONSERVER_InferenceTraceActivity activity);

// Makes a trace of timestamps.
//   trace      out; the caller's until it is given to ServerInferAsync
//   level      TRITONSERVER_InferenceTraceLevel bits
//   parent_id  0 for none
//   trace_userp  optional; comes back in the functions
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceNew(
    struct TRITONSERVER_InferenceTrace** trace, TRITONSERVER_InferenceTraceLevel level,
    uint64_t parent_id, TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void* trace_userp);

// As InferenceTraceNew, with a function for tensors.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceTensorNew(
    struct TRITONSERVER_InferenceTrace** trace, TRITONSERVER_InferenceTraceLevel level,
    uint64_t parent_id, TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceTensorActivityFn_t tensor_activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void* trace_userp);

// Adds an activity of the caller's own, which the activity function gets as CUSTOM_ACTIVITY.
//   timestamp  ns, steady clock
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceReportActivity(
    struct TRITONSERVER_InferenceTrace* trace, uint64_t timestamp, const char* activity_name);

// Legal before the request is started and after the release function ran.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceDelete(
    struct TRITONSERVER_InferenceTrace* trace);

// Unique in the process.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceId(
    struct TRITONSERVER_InferenceTrace* trace, uint64_t* id);

// 0 for none.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceParentId(
    struct TRITONSERVER_InferenceTrace* trace, uint64_t* parent_id);

// The model of the traced request.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceModelName(
    struct TRITONSERVER_InferenceTrace* trace, const char** model_name);

// The version that was chosen for it.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceModelVersion(
    struct TRITONSERVER_InferenceTrace* trace, int64_t* model_version);

// "" when the request has none.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceRequestId(
    struct TRITONSERVER_InferenceTrace* trace, const char** request_id);

// A trace of the same functions for a request that serves this one, as the step of an ensemble
// does.
//   child_trace  out; the caller's until its request is started
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceSpawnChildTrace(
    struct TRITONSERVER_InferenceTrace* trace, struct TRITONSERVER_InferenceTrace** child_trace);

// A text that travels with the trace: the carrier of distributed tracing.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceSetContext(
    struct TRITONSERVER_InferenceTrace* trace, const char* trace_context);

// Reads that text.
//   trace_context  out; empty when none was set
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceContext(
    struct TRITONSERVER_InferenceTrace* trace, const char** trace_context);

// ---- Inference request: life
//
// A request is built, given to ServerInferAsync, and comes back by its release callback; then it
// may be changed and used again, or deleted. While it is in flight only the Cancel functions may
// touch it.

// Bits that mark the first and the last request of a sequence.
typedef enum tritonserver_requestflag_enum {
  TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1,
  TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2,
} TRITONSERVER_RequestFlag;

// How a backend gives a request back.
typedef enum tritonserver_requestreleaseflag_enum {
  TRITONSERVER_REQUEST_RELEASE_ALL = 1,         // for good: its caller gets it
  TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2,  // to be scheduled again (iterative sequences)
} TRITONSERVER_RequestReleaseFlag;

typedef enum tritonserver_responsecompleteflag_enum {
  TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1,  // no further response of this request follows
} TRITONSERVER_ResponseCompleteFlag;

// The request, and the memory of its inputs, belongs to the caller again. On a thread of the
// host or of the backend; before or after the final response.
//   flags  TRITONSERVER_RequestReleaseFlag bits
typedef void (*TRITONSERVER_InferenceRequestReleaseFn_t)(
    struct TRITONSERVER_InferenceRequest* request, const uint32_t flags, void* userp);

// One response, which the caller now owns. Calls for one request never overlap.
//   response  null with the FINAL flag: the stream ended with the response before
//   flags     TRITONSERVER_ResponseCompleteFlag bits
typedef void (*TRITONSERVER_InferenceResponseCompleteFn_t)(
    struct TRITONSERVER_InferenceResponse* response, const uint32_t flags, void* userp);

// Makes a request to one model.
//   inference_request  out; the caller's
//   model_version      -1: the version that the model's policy chooses
//   Errors: NOT_FOUND, no such model or version; UNAVAILABLE, not ready.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestNew(
    struct TRITONSERVER_InferenceRequest** inference_request, struct TRITONSERVER_Server* server,
    const char* model_name, const int64_t model_version);

// Not while it is in flight. Once its final response was sent it stays, for its backend, until its
// release callback: deleted before that, it is gone when the callback has returned; after it, at
// once.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestDelete(
    struct TRITONSERVER_InferenceRequest* inference_request);

// Asks the model to stop; without effect once the final response was sent. Any thread, from
// ServerInferAsync to the delete. The final response still comes, with CANCELLED or with what
// was done.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestCancel(
    struct TRITONSERVER_InferenceRequest* inference_request);

// Any thread, as Cancel.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestIsCancelled(
    struct TRITONSERVER_InferenceRequest* inference_request, bool* is_cancelled);

// Required.
//   request_release_userp  optional; comes back in the callback
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetReleaseCallback(
    struct TRITONSERVER_InferenceRequest* inference_request,
    TRITONSERVER_InferenceRequestReleaseFn_t request_release_fn, void* request_release_userp);

// Required.
//   response_allocator  outlives the request and its responses
//   response_allocator_userp, response_userp  optional; come back in the allocator's functions and
//       in the callback
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetResponseCallback(
    struct TRITONSERVER_InferenceRequest* inference_request,
    struct TRITONSERVER_ResponseAllocator* response_allocator, void* response_allocator_userp,
    TRITONSERVER_InferenceResponseCompleteFn_t response_fn, void* response_userp);

// ---- Inference request: attributes

// "" when none was set.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestId(
    struct TRITONSERVER_InferenceRequest* inference_request, const char** id);

// Any text; it names the request in responses, traces and errors. Not checked for uniqueness.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetId(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* id);

// Reads the flags; 0 when none were set.
//   flags  out; TRITONSERVER_RequestFlag bits
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestFlags(
    struct TRITONSERVER_InferenceRequest* inference_request, uint32_t* flags);

// Sets TRITONSERVER_RequestFlag bits, in place of those set before.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetFlags(
    struct TRITONSERVER_InferenceRequest* inference_request, uint32_t flags);

// The sequence that it belongs to; 0 for none.
//   Errors: INVALID_ARG, the id is a text.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestCorrelationId(
    struct TRITONSERVER_InferenceRequest* inference_request, uint64_t* correlation_id);

// The same for an id that is a text.
//   correlation_id  out; "" for none
//   Errors: INVALID_ARG, the id is a number.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestCorrelationIdString(
    struct TRITONSERVER_InferenceRequest* inference_request, const char** correlation_id);

// Replaces a text too. 0 means none.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetCorrelationId(
    struct TRITONSERVER_InferenceRequest* inference_request, uint64_t correlation_id);

// Replaces a number too. "" means none; at most 128 bytes.
//   Errors: INVALID_ARG, too long.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_InferenceRequestSetCorrelationIdString(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* correlation_id);

// Deprecated: InferenceRequestPriorityUInt64.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestPriority(
    struct TRITONSERVER_InferenceRequest* inference_request, uint32_t* priority);

// 0: the model's default. Level 1 is served first.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestPriorityUInt64(
    struct TRITONSERVER_InferenceRequest* inference_request, uint64_t* priority);

// Deprecated: InferenceRequestSetPriorityUInt64.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetPriority(
    struct TRITONSERVER_InferenceRequest* inference_request, uint32_t priority);

// A level beyond the model's counts as its default.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetPriorityUInt64(
    struct TRITONSERVER_InferenceRequest* inference_request, uint64_t priority);

// 0: the model's default.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestTimeoutMicroseconds(
    struct TRITONSERVER_InferenceRequest* inference_request, uint64_t* timeout_us);

// How long it may wait in the queue, where the model's queue policy allows an override.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(
    struct TRITONSERVER_InferenceRequest* inference_request, uint64_t timeout_us);

// Adds a parameter that the model reads beside the tensors.
//   key, value  copied
//   Errors: INVALID_ARG, the key is reserved (as for the three that follow).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetStringParameter(
    struct TRITONSERVER_InferenceRequest* request, const char* key, const char* value);

// Adds a number.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetIntParameter(
    struct TRITONSERVER_InferenceRequest* request, const char* key, const int64_t value);

// Adds a truth value.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetBoolParameter(
    struct TRITONSERVER_InferenceRequest* request, const char* key, const bool value);

// Adds a number with a fraction.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetDoubleParameter(
    struct TRITONSERVER_InferenceRequest* request, const char* key, const double value);

// ---- Inference request: tensors
//
// Input data is referenced, never copied: it stays readable and unchanged from ServerInferAsync
// to the release callback. Shapes have the batch dimension where the model batches. Whether the
// tensors suit the model is checked by ServerInferAsync.

// Adds an input, as yet without data.
//   shape  copied; every dimension >= 0
//   Errors: INVALID_ARG, a second input of the name, or a negative dimension.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddInput(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name,
    const TRITONSERVER_DataType datatype, const int64_t* shape, uint64_t dim_count);

// An input whose type and shape the model's configuration gives; the model has this input alone.
//   Errors: INVALID_ARG, the model has several inputs, or the shape is not fixed.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRawInput(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name);

// Removes an input with its data.
//   Errors: INVALID_ARG, no such input (as for every function here that takes an input's name).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveInput(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name);

// Removes every input with its data.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllInputs(
    struct TRITONSERVER_InferenceRequest* inference_request);

// Adds a piece of an input's bytes after those given before. The backend may see them as several
// buffers.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputData(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name, const void* base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id);

// The same bytes in another place, for instances of this host policy; others get those given
// without a policy.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name, const void* base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id,
    const char* host_policy_name);

// As AppendInputData.
//   buffer_attributes  copied; its byte size is the piece's
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name, const void* base,
    struct TRITONSERVER_BufferAttributes* buffer_attributes);

// The input itself stays.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllInputData(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name);

// Without any such call every output of the model is asked for. An output that the model does
// not have is refused by ServerInferAsync.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRequestedOutput(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name);

// Takes back one AddRequestedOutput.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveRequestedOutput(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name);

// Takes back all of them: every output is asked for again.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(
    struct TRITONSERVER_InferenceRequest* inference_request);

// ---- Inference response
//
// What a model answered. The response callback's receiver owns it; everything read from it,
// output buffers included, dies with it.

// Gives the output buffers to the allocator's release function.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseDelete(
    struct TRITONSERVER_InferenceResponse* inference_response);

// Null when the model answered, else a copy of its error that the caller owns; there are then no
// outputs.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseError(
    struct TRITONSERVER_InferenceResponse* inference_response);

// The model that answered, with the version that was chosen.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseModel(
    struct TRITONSERVER_InferenceResponse* inference_response, const char** model_name,
    int64_t* model_version);

// The request's id; "" when it has none.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseId(
    struct TRITONSERVER_InferenceResponse* inference_response, const char** request_id);

// How many parameters the model added.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameterCount(
    struct TRITONSERVER_InferenceResponse* inference_response, uint32_t* count);

// One of them, in the order in which they were added.
//   vvalue  out; as TRITONSERVER_ParameterType says
//   Errors: INVALID_ARG, index out of range (as for every function here that takes one).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameter(
    struct TRITONSERVER_InferenceResponse* inference_response, const uint32_t index,
    const char** name, TRITONSERVER_ParameterType* type, const void** vvalue);

// How many outputs it has.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputCount(
    struct TRITONSERVER_InferenceResponse* inference_response, uint32_t* count);

// One output, in the order in which the backend made them.
//   base   out; null when byte_size is 0
//   userp  out; what the alloc function gave as buffer_userp
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutput(
    struct TRITONSERVER_InferenceResponse* inference_response, const uint32_t index,
    const char** name, TRITONSERVER_DataType* datatype, const int64_t** shape, uint64_t* dim_count,
    const void** base, size_t* byte_size, TRITONSERVER_MemoryType* memory_type,
    int64_t* memory_type_id, void** userp);

// The label of a class of an output.
//   label  out; null when the model has no labels for it
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_InferenceResponseOutputClassificationLabel(
    struct TRITONSERVER_InferenceResponse* inference_response, const uint32_t index,
    const size_t class_index, const char** label);

// ---- Server options
//
// Everything a server is made with. Read once by ServerNew; deleted or used again after it. A
// setter's value is checked where it can be, else by ServerNew. Defaults are those of the flag
// of the same meaning in `nereid --help`.

// Who decides which models are loaded. NONE: all at the start, none later; POLL: those in the
// repository, which is looked at again and again; EXPLICIT: the startup models, then
// ServerLoadModel and ServerUnloadModel.
typedef enum tritonserver_modelcontrolmode_enum {
  TRITONSERVER_MODEL_CONTROL_NONE = 0,
  TRITONSERVER_MODEL_CONTROL_POLL = 1,
  TRITONSERVER_MODEL_CONTROL_EXPLICIT = 2,
} TRITONSERVER_ModelControlMode;

typedef enum tritonserver_ratelimitmode_enum {
  TRITONSERVER_RATE_LIMIT_OFF = 0,
  TRITONSERVER_RATE_LIMIT_EXEC_COUNT = 1,  // instances that ran less go first, within the resources
} TRITONSERVER_RateLimitMode;

// One line of the log, on the thread that wrote it. It must not log and must not throw.
//   timestamp_us  since the epoch
//   message       readable during the call only
typedef void (*TRITONSERVER_LogCallbackFn_t)(TRITONSERVER_LogLevel level, const char* filename,
                                             int line, uint64_t timestamp_us, const char* message,
                                             void* userp);

// Makes options.
//   options  out; the caller's, with every default set
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsNew(
    struct TRITONSERVER_ServerOptions** options);

// Gives options up.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsDelete(
    struct TRITONSERVER_ServerOptions* options);

// Names the server in metadata, traces and statistics.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetServerId(
    struct TRITONSERVER_ServerOptions* options, const char* server_id);

// Adds a repository; at least one is required. Call again for more.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelRepositoryPath(
    struct TRITONSERVER_ServerOptions* options, const char* model_repository_path);

// Who decides which models are loaded.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelControlMode(
    struct TRITONSERVER_ServerOptions* options, TRITONSERVER_ModelControlMode mode);

// Adds a model to load at the start, in EXPLICIT mode; "*" alone means all.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetStartupModel(
    struct TRITONSERVER_ServerOptions* options, const char* model_name);

// true: backends may not complete a model's configuration.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetStrictModelConfig(
    struct TRITONSERVER_ServerOptions* options, bool strict);

// Prefer `configs/<name>.pbtxt` to config.pbtxt where a model has it.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelConfigName(
    struct TRITONSERVER_ServerOptions* options, const char* model_config_name);

// Whether instances queue for resources.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetRateLimiterMode(
    struct TRITONSERVER_ServerOptions* options, TRITONSERVER_RateLimitMode mode);

// How much of a resource there is; by default the most that one instance asks for.
//   device  -1: shared by all devices
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsAddRateLimiterResource(
    struct TRITONSERVER_ServerOptions* options, const char* resource_name,
    const size_t resource_count, const int device);

// 0: no pool.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(struct TRITONSERVER_ServerOptions* options,
                                                      uint64_t size);

// 0: no pool on this device.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(struct TRITONSERVER_ServerOptions* options,
                                                    int gpu_device, uint64_t size);

// Address space kept for growing state on this device.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(struct TRITONSERVER_ServerOptions* options,
                                                    int gpu_device,
                                                    size_t cuda_virtual_address_size);

// Deprecated: SetCacheConfig("local", {"size": ...}).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetResponseCacheByteSize(
    struct TRITONSERVER_ServerOptions* options, uint64_t size);

// Chooses a response cache; one a server.
//   config_json  its settings as a JSON object, handed to the cache as it is
//   Errors: INVALID_ARG, a second cache.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCacheConfig(
    struct TRITONSERVER_ServerOptions* options, const char* cache_name, const char* config_json);

// Where `<name>/libtritoncache_<name>.so` lies.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCacheDirectory(
    struct TRITONSERVER_ServerOptions* options, const char* cache_dir);

// Devices below it are not used.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(
    struct TRITONSERVER_ServerOptions* options, double cc);

// true: ServerNew fails when a startup model does.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetExitOnError(
    struct TRITONSERVER_ServerOptions* options, bool exit);

// true: the server is ready only while every model is.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetStrictReadiness(
    struct TRITONSERVER_ServerOptions* options, bool strict);

// Seconds that ServerStop waits for requests in flight.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetExitTimeout(
    struct TRITONSERVER_ServerOptions* options, unsigned int timeout);

// Threads that copy inputs and outputs; 0: the instance's own.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(struct TRITONSERVER_ServerOptions* options,
                                                      unsigned int thread_count);

// How many models load at the same time.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelLoadThreadCount(
    struct TRITONSERVER_ServerOptions* options, unsigned int thread_count);

// How often a failed load is tried again.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelLoadRetryCount(
    struct TRITONSERVER_ServerOptions* options, unsigned int retry_count);

// true: repositories may have models of the same name.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelNamespacing(
    struct TRITONSERVER_ServerOptions* options, bool enable_namespace);

// Whether devices may read each other's memory.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetEnablePeerAccess(
    struct TRITONSERVER_ServerOptions* options, bool enable_peer_access);

// "": the standard error stream. At once, for the whole process (as the five that follow).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogFile(
    struct TRITONSERVER_ServerOptions* options, const char* file);

// Switches informational lines.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogInfo(
    struct TRITONSERVER_ServerOptions* options, bool log);

// Switches warnings.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogWarn(
    struct TRITONSERVER_ServerOptions* options, bool log);

// Switches errors.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogError(
    struct TRITONSERVER_ServerOptions* options, bool log);

// How a line begins.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogFormat(
    struct TRITONSERVER_ServerOptions* options, const TRITONSERVER_LogFormat format);

// Switches verbose lines.
//   level  0: none; a higher level says more
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogVerbose(
    struct TRITONSERVER_ServerOptions* options, int level);

// Hands every log line to a function, beside the file; at once, for the whole process. An
// addition to version 1.34, which newer embedders import: a plug-in cannot rely on it.
//   callback  optional: null takes it away
//   userp     optional; comes back in the callback
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogCallback(
    struct TRITONSERVER_ServerOptions* options, TRITONSERVER_LogCallbackFn_t callback, void* userp);

// Whether metrics are kept at all.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetMetrics(
    struct TRITONSERVER_ServerOptions* options, bool metrics);

// Only with SetMetrics (as the two that follow).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetGpuMetrics(
    struct TRITONSERVER_ServerOptions* options, bool gpu_metrics);

// Gauges of the machine's processors and memory.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCpuMetrics(
    struct TRITONSERVER_ServerOptions* options, bool cpu_metrics);

// How often gauges of the machine are read.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetMetricsInterval(
    struct TRITONSERVER_ServerOptions* options, uint64_t metrics_interval_ms);

// Where `<name>/libtriton_<name>.so` lies, after the model's own folders.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetBackendDirectory(
    struct TRITONSERVER_ServerOptions* options, const char* backend_dir);

// Where `<name>/libtritonrepoagent_<name>.so` lies.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetRepoAgentDirectory(
    struct TRITONSERVER_ServerOptions* options, const char* repoagent_dir);

// Refuses loads while more than this part of the device's memory is in use.
//   fraction  0 to 1
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(
    struct TRITONSERVER_ServerOptions* options, const TRITONSERVER_InstanceGroupKind kind,
    const int device_id, const double fraction);

// A setting that backends read by TRITONBACKEND_BackendConfig.
//   backend_name  "": for every backend
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetBackendConfig(
    struct TRITONSERVER_ServerOptions* options, const char* backend_name, const char* setting,
    const char* value);

// Binds the threads of instances with this policy.
//   setting  "numa-node" or "cpu-cores"
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetHostPolicy(
    struct TRITONSERVER_ServerOptions* options, const char* policy_name, const char* setting,
    const char* value);

// A setting of the metrics themselves.
//   name  the kind of metric; "": for all
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetMetricsConfig(
    struct TRITONSERVER_ServerOptions* options, const char* name, const char* setting,
    const char* value);

// ---- Server: life and health
//
// A server may be used by any number of threads at once.

// Starts a server; returns when its startup models are loaded or failed.
//   server  out; the caller's
//   Errors: INVALID_ARG, options that contradict; INTERNAL, a startup model failed and
//       exit-on-error is set.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerNew(
    struct TRITONSERVER_Server** server, struct TRITONSERVER_ServerOptions* options);

// Stops it first if it runs. Not while a request is in flight, and not from a callback.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerDelete(
    struct TRITONSERVER_Server* server);

// Refuses new requests, waits for those in flight up to the exit timeout, unloads every model.
//   Errors: INTERNAL, the timeout passed.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerStop(
    struct TRITONSERVER_Server* server);

// Replaces the option's seconds, for a later ServerStop.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerSetExitTimeout(
    struct TRITONSERVER_Server* server, unsigned int timeout);

// Whether it can answer at all.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerIsLive(
    struct TRITONSERVER_Server* server, bool* live);

// Whether it can serve: with strict readiness, every model too.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerIsReady(
    struct TRITONSERVER_Server* server, bool* ready);

// Whether this model can serve right now.
//   model_version  -1: the version that the policy chooses (as everywhere below)
//   Errors: NOT_FOUND, no such model.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelIsReady(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    bool* ready);

// ---- Server: repositories and models
//
// Loading and unloading block until done; requests are served meanwhile. A reload keeps the old
// version serving until the new one is ready, and for good when it fails.

// Bits.
typedef enum tritonserver_modelindexflag_enum {
  TRITONSERVER_INDEX_FLAG_READY = 1,  // only models that are ready
} TRITONSERVER_ModelIndexFlag;

// Adds a repository whose models ServerLoadModel then finds; EXPLICIT mode only.
//   name_mapping   optional; STRING parameters: name is the folder, value the model's name
//   Errors: UNSUPPORTED, another control mode; ALREADY_EXISTS, registered before.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerRegisterModelRepository(
    struct TRITONSERVER_Server* server, const char* repository_path,
    const struct TRITONSERVER_Parameter** name_mapping, const uint32_t mapping_count);

// Loaded models stay.
//   Errors: UNSUPPORTED, another control mode; NOT_FOUND, not registered.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerUnregisterModelRepository(
    struct TRITONSERVER_Server* server, const char* repository_path);

// Looks at the repositories once, loading and unloading what changed; POLL mode only.
//   Errors: UNAVAILABLE, another control mode.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerPollModelRepository(
    struct TRITONSERVER_Server* server);

// What the repositories hold, as a JSON array of {name, version, state, reason}.
//   flags        TRITONSERVER_ModelIndexFlag bits
//   model_index  out; the caller's
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelIndex(
    struct TRITONSERVER_Server* server, uint32_t flags, struct TRITONSERVER_Message** model_index);

// Loads or reloads a model, and first the models that it is made of; EXPLICIT mode only.
//   Errors: UNSUPPORTED, another control mode; INVALID_ARG or INTERNAL, the load failed: the text
//       says why; NOT_FOUND, no such folder.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerLoadModel(
    struct TRITONSERVER_Server* server, const char* model_name);

// As ServerLoadModel.
//   parameters  STRING "config": a configuration as JSON that replaces config.pbtxt; BYTES
//       "file:<version>/<name>": files that replace the model's folder, together with "config"
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerLoadModelWithParameters(
    struct TRITONSERVER_Server* server, const char* model_name,
    const struct TRITONSERVER_Parameter** parameters, const uint64_t parameter_count);

// Unloads every version once its requests are done; EXPLICIT mode only.
//   Errors: UNSUPPORTED, another control mode.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerUnloadModel(
    struct TRITONSERVER_Server* server, const char* model_name);

// The same for the models that it is made of, unless others need them.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerUnloadModelAndDependents(
    struct TRITONSERVER_Server* server, const char* model_name);

// ---- Server: descriptions
//
// Messages are new with each call and the caller's to delete.

typedef enum tritonserver_batchflag_enum {
  TRITONSERVER_BATCH_UNKNOWN = 1,    // no statement is possible
  TRITONSERVER_BATCH_FIRST_DIM = 2,  // the first dimension of every tensor is the batch
} TRITONSERVER_ModelBatchFlag;

typedef enum tritonserver_txn_property_flag_enum {
  TRITONSERVER_TXN_ONE_TO_ONE = 1,  // exactly one response a request
  TRITONSERVER_TXN_DECOUPLED = 2,   // any number of responses
} TRITONSERVER_ModelTxnPropertyFlag;

// How the model takes batches.
//   flags  out; TRITONSERVER_ModelBatchFlag bits
//   voidp  optional; reserved, receives null
//   Errors: NOT_FOUND, no such model or version; UNAVAILABLE, not ready (as for every function
//       here).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelBatchProperties(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    uint32_t* flags, void** voidp);

// How many responses the model gives.
//   txn_flags  out; TRITONSERVER_ModelTxnPropertyFlag bits
//   voidp      optional; reserved, receives null
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelTransactionProperties(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    uint32_t* txn_flags, void** voidp);

// Name, version and extensions.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerMetadata(
    struct TRITONSERVER_Server* server, struct TRITONSERVER_Message** server_metadata);

// Versions, platform, inputs and outputs.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelMetadata(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    struct TRITONSERVER_Message** model_metadata);

// Counts and times of requests, executions and batches.
//   model_name     "": all models
//   model_version  -1: all versions
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelStatistics(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    struct TRITONSERVER_Message** model_stats);

// The configuration as it is used, completed and normalised.
//   config_version  1
//   Errors: also UNSUPPORTED, another config_version.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelConfig(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    const uint32_t config_version, struct TRITONSERVER_Message** model_config);

// A snapshot of every metric.
//   metrics  out; the caller's (MetricsDelete)
//   Errors: UNAVAILABLE, metrics are off.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerMetrics(
    struct TRITONSERVER_Server* server, struct TRITONSERVER_Metrics** metrics);

// ---- Server: inference

// Starts a request. On success it is the host's until its release callback; on error it stays
// the caller's and none of its callbacks runs. Callbacks may run before this returns.
//   trace  optional; the host's from the call on, also where that fails, until its release
//       callback. Only one that another inference has or had stays what it was.
//   Errors: INVALID_ARG, tensors that do not suit the model: the text names tensor, expected and
//       given; UNAVAILABLE, not ready or queue full; UNSUPPORTED.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(
    struct TRITONSERVER_Server* server, struct TRITONSERVER_InferenceRequest* inference_request,
    struct TRITONSERVER_InferenceTrace* trace);

// ---- Metrics of a plug-in's own
//
// They appear on the metrics page beside the host's. Counters, gauges and histograms may be
// changed by several threads at once.

typedef enum TRITONSERVER_metrickind_enum {
  TRITONSERVER_METRIC_KIND_COUNTER = 0,    // only rises
  TRITONSERVER_METRIC_KIND_GAUGE = 1,      // rises, falls, is set
  TRITONSERVER_METRIC_KIND_HISTOGRAM = 2,  // observations, counted by buckets
} TRITONSERVER_MetricKind;

// A name with a kind, under which metrics differ by labels.
//   family  out; the caller's. A name that exists already gives a handle to the same family
//   Errors: INVALID_ARG, the name is taken by another kind, or no valid name; UNSUPPORTED, metrics
//       are not built in.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricFamilyNew(
    struct TRITONSERVER_MetricFamily** family, const TRITONSERVER_MetricKind kind, const char* name,
    const char* description);

// After its metrics.
//   Errors: INTERNAL, metrics of it live.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricFamilyDelete(
    struct TRITONSERVER_MetricFamily* family);

// The kind it was made with.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_GetMetricFamilyKind(
    struct TRITONSERVER_MetricFamily* family, TRITONSERVER_MetricKind* kind);

// What a metric may need beyond labels.
//   args  out; the caller's, may be deleted after MetricNewWithArgs
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricArgsNew(
    struct TRITONSERVER_MetricArgs** args);

// Sets the buckets of a histogram.
//   buckets  copied; upper bounds, rising
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricArgsSetHistogram(
    struct TRITONSERVER_MetricArgs* args, const double* buckets, const uint64_t buckets_count);

// Gives the arguments up.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricArgsDelete(
    struct TRITONSERVER_MetricArgs* args);

// One set of labels of a family. The same labels give a handle to the same metric.
//   metric  out; the caller's
//   labels  STRING parameters; copied
//   Errors: INVALID_ARG, a label of another type.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricNew(
    struct TRITONSERVER_Metric** metric, struct TRITONSERVER_MetricFamily* family,
    const struct TRITONSERVER_Parameter** labels, const uint64_t label_count);

// As MetricNew, for histograms.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricNewWithArgs(
    struct TRITONSERVER_Metric** metric, struct TRITONSERVER_MetricFamily* family,
    const struct TRITONSERVER_Parameter** labels, const uint64_t label_count,
    const struct TRITONSERVER_MetricArgs* args);

// Gives the handle up; with the last one the metric leaves the page.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricDelete(
    struct TRITONSERVER_Metric* metric);

// Reads a counter or a gauge.
//   Errors: UNSUPPORTED, a histogram.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricValue(
    struct TRITONSERVER_Metric* metric, double* value);

// Adds to a counter or a gauge.
//   value  of a counter, not negative
//   Errors: INVALID_ARG, a counter and a negative value; UNSUPPORTED, a histogram.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricIncrement(
    struct TRITONSERVER_Metric* metric, double value);

// Sets a gauge.
//   Errors: UNSUPPORTED, no gauge.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricSet(
    struct TRITONSERVER_Metric* metric, double value);

// Counts a value into a histogram.
//   Errors: UNSUPPORTED, no histogram.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricObserve(
    struct TRITONSERVER_Metric* metric, double value);

// The kind of its family.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_GetMetricKind(
    struct TRITONSERVER_Metric* metric, TRITONSERVER_MetricKind* kind);

#ifdef __cplusplus
}  // extern "C"
#endif
