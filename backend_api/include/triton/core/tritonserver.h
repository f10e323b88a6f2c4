// The server API: functions for callers of models (frontends, programs that embed the server, the
// ensemble), and the types that all four headers share. C99 and C++.
//
// Rules for every function of this header:
//  - A function that returns `struct TRITONSERVER_Error*` returns null on success; otherwise the
//    caller owns the error (ErrorDelete). Out parameters are written on success only.
//  - Handles are opaque. A New function creates them and the Delete function of their family frees
//    them, unless a call is documented to take ownership. A handle is never null unless marked
//    optional.
//  - Strings are UTF-8 and NUL-terminated. Strings that are passed in are copied. A returned string
//    belongs to the object that it was read from and is valid as long as the object.
//  - Any thread may call any function. One thread at a time uses an object, unless its family is
//    documented otherwise. No C++ exception crosses the API in either direction.
//  - Host and plug-in must have the same major version. A plug-in accepts a host whose minor
//    version is at least its own.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// For functions that the host exports.
#define TRITONSERVER_DECLSPEC __attribute__((visibility("default")))

// The version of this header; see TRITONSERVER_ApiVersion.
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
// In the ABI, enums are 32-bit integers and bool is one byte.

// The type of a tensor's elements. BYTES elements differ in size: each is a 4-byte little-endian
// length, followed by that many bytes. BOOL is one byte, 0 or 1. Elements are little-endian and in
// row-major order.
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

// The kind of memory of a buffer. The memory type id is the device of GPU memory and 0 otherwise.
typedef enum TRITONSERVER_memorytype_enum {
  TRITONSERVER_MEMORY_CPU = 0,
  TRITONSERVER_MEMORY_CPU_PINNED = 1,  // page-locked: faster copies to and from a device
  TRITONSERVER_MEMORY_GPU = 2,
} TRITONSERVER_MemoryType;

// The type of the value behind a `const void*`. For STRING, the pointer itself is a `const char*`.
// For INT, BOOL and DOUBLE it points to an int64_t, bool or double. BYTES, only in
// ParameterBytesNew, is a buffer.
typedef enum TRITONSERVER_parametertype_enum {
  TRITONSERVER_PARAMETER_STRING = 0,
  TRITONSERVER_PARAMETER_INT = 1,
  TRITONSERVER_PARAMETER_BOOL = 2,
  TRITONSERVER_PARAMETER_DOUBLE = 3,
  TRITONSERVER_PARAMETER_BYTES = 4,
} TRITONSERVER_ParameterType;

// Where a model instance runs. AUTO: the host decides; MODEL: the model itself decides.
typedef enum TRITONSERVER_instancegroupkind_enum {
  TRITONSERVER_INSTANCEGROUPKIND_AUTO = 0,
  TRITONSERVER_INSTANCEGROUPKIND_CPU = 1,
  TRITONSERVER_INSTANCEGROUPKIND_GPU = 2,
  TRITONSERVER_INSTANCEGROUPKIND_MODEL = 3,
} TRITONSERVER_InstanceGroupKind;

// Frontends map these codes to HTTP and gRPC statuses.
typedef enum TRITONSERVER_errorcode_enum {
  TRITONSERVER_ERROR_UNKNOWN = 0,         // no better code is known
  TRITONSERVER_ERROR_INTERNAL = 1,        // a bug or failure of the host or a backend
  TRITONSERVER_ERROR_NOT_FOUND = 2,       // the named object does not exist
  TRITONSERVER_ERROR_INVALID_ARG = 3,     // the caller's input is wrong; the same call fails again
  TRITONSERVER_ERROR_UNAVAILABLE = 4,     // temporary: not loaded, queue full, out of memory
  TRITONSERVER_ERROR_UNSUPPORTED = 5,     // valid, but not supported by this host or model
  TRITONSERVER_ERROR_ALREADY_EXISTS = 6,  // the name or the buffer already exists
  TRITONSERVER_ERROR_CANCELLED = 7,       // the caller cancelled the request
} TRITONSERVER_Error_Code;

// The host's version of this API.
//   major, minor  out
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ApiVersion(uint32_t* major,
                                                                         uint32_t* minor);

// The name in the protocols ("FP32", "BYTES"); "<invalid>" for other values. Static string.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_DataTypeString(TRITONSERVER_DataType datatype);

// The inverse of DataTypeString; TRITONSERVER_TYPE_INVALID for an unknown name.
TRITONSERVER_DECLSPEC TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char* dtype);

// Bytes of one element; 0 for BYTES and INVALID.
TRITONSERVER_DECLSPEC uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType datatype);

// The name ("CPU", "CPU_PINNED", "GPU"); "<invalid>" for other values. Static string.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_MemoryTypeString(TRITONSERVER_MemoryType memtype);

// The name ("STRING", "INT", ...); "<invalid>" for other values. Static string.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_ParameterTypeString(
    TRITONSERVER_ParameterType paramtype);

// The name ("CPU", "GPU", ...); "<invalid>" for other values. Static string.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_InstanceGroupKindString(
    TRITONSERVER_InstanceGroupKind kind);

// ---- Errors

// Creates an error that the caller owns. Never null.
//   msg  copied
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code,
                                                                       const char* msg);

// Deletes an error.
//   error  optional: null is allowed and does nothing
TRITONSERVER_DECLSPEC void TRITONSERVER_ErrorDelete(struct TRITONSERVER_Error* error);

// Returns the error's code.
TRITONSERVER_DECLSPEC TRITONSERVER_Error_Code
TRITONSERVER_ErrorCode(struct TRITONSERVER_Error* error);

// Returns the code's name ("Invalid argument", "Not found", ...). Static string.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_ErrorCodeString(struct TRITONSERVER_Error* error);

// Returns the message, which is valid as long as the error.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_ErrorMessage(struct TRITONSERVER_Error* error);

// ---- Parameters
//
// Named values that a caller creates: overrides of a model load, labels of a metric.

// Creates a parameter that the caller owns. Null if the type is BYTES or invalid.
//   name   copied
//   value  see TRITONSERVER_ParameterType; copied
TRITONSERVER_DECLSPEC struct TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(
    const char* name, const TRITONSERVER_ParameterType type, const void* value);

// Creates a BYTES parameter that the caller owns.
//   byte_ptr  referenced, not copied; it outlives the parameter
TRITONSERVER_DECLSPEC struct TRITONSERVER_Parameter* TRITONSERVER_ParameterBytesNew(
    const char* name, const void* byte_ptr, const uint64_t size);

// Deletes a parameter.
TRITONSERVER_DECLSPEC void TRITONSERVER_ParameterDelete(struct TRITONSERVER_Parameter* parameter);

// ---- Log
//
// Each process has one log, which the server's options configure. Any thread may call the functions
// at any time, also before a server exists.

// The levels of log lines. Each level is enabled separately.
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

// Whether lines of this level are written. Check it before creating an expensive message.
TRITONSERVER_DECLSPEC bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level);

// Writes one line if its level is enabled.
//   filename, line  where the message comes from; the host writes only the last component of the
//       path
//   Errors: INVALID_ARG, unknown level.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_LogMessage(
    TRITONSERVER_LogLevel level, const char* filename, const int line, const char* msg);

// ---- Messages
//
// A JSON document as one object.

// Parses and copies the text.
//   message  out; owned by the caller
//   Errors: INVALID_ARG, not JSON.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(
    struct TRITONSERVER_Message** message, const char* base, size_t byte_size);

// Deletes a message and the text that was read from it.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MessageDelete(
    struct TRITONSERVER_Message* message);

// Returns the document as text without a terminating NUL.
//   base, byte_size  out; memory of the message, valid as long as it
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(
    struct TRITONSERVER_Message* message, const char** base, size_t* byte_size);

// ---- Metrics page
//
// A snapshot of all metrics, created by ServerMetrics.

// Prometheus' text format is the only one.
typedef enum tritonserver_metricformat_enum {
  TRITONSERVER_METRIC_PROMETHEUS = 0,
} TRITONSERVER_MetricFormat;

// Deletes the snapshot and the text that was read from it.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricsDelete(
    struct TRITONSERVER_Metrics* metrics);

// Returns the snapshot as text without a terminating NUL.
//   base, byte_size  out; memory of the snapshot, valid as long as it
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricsFormatted(
    struct TRITONSERVER_Metrics* metrics, TRITONSERVER_MetricFormat format, const char** base,
    size_t* byte_size);

// ---- Buffer attributes
//
// Describes the memory of a buffer. Getters return the values that were set; the defaults are CPU,
// 0, 0 and null.

// Creates attributes with the defaults above.
//   buffer_attributes  out; owned by the caller
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesNew(
    struct TRITONSERVER_BufferAttributes** buffer_attributes);

// Deletes the attributes, not the buffer.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesDelete(
    struct TRITONSERVER_BufferAttributes* buffer_attributes);

// Sets the device of GPU memory.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetMemoryTypeId(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, int64_t memory_type_id);

// Sets the memory type.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetMemoryType(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, TRITONSERVER_MemoryType memory_type);

// Sets the handle by which another process can open the buffer.
//   cuda_ipc_handle  a cudaIpcMemHandle_t; referenced, it outlives the attributes
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetCudaIpcHandle(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, void* cuda_ipc_handle);

// Sets the size of the buffer.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetByteSize(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, size_t byte_size);

// Reads the device of GPU memory.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesMemoryTypeId(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, int64_t* memory_type_id);

// Reads the memory type.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesMemoryType(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, TRITONSERVER_MemoryType* memory_type);

// Reads the handle; null if none was set.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesCudaIpcHandle(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, void** cuda_ipc_handle);

// Reads the size of the buffer.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_BufferAttributesByteSize(
    struct TRITONSERVER_BufferAttributes* buffer_attributes, size_t* byte_size);

// ---- Response allocator
//
// Functions of the caller that supply the memory of outputs. The host calls them on the backend's
// thread while a backend creates a response, for several responses concurrently. An error that they
// return belongs to the host and fails the response.

// Provides the memory of one output.
//   byte_size  may be 0; the buffer may then be null
//   memory_type, memory_type_id  the memory that the backend prefers
//   userp  the userp of InferenceRequestSetResponseCallback
//   buffer, buffer_userp, actual_memory_type, actual_memory_type_id  out; the memory belongs to the
//       caller and stays valid until it is passed to the release function
typedef struct TRITONSERVER_Error* (*TRITONSERVER_ResponseAllocatorAllocFn_t)(
    struct TRITONSERVER_ResponseAllocator* allocator, const char* tensor_name, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id, void* userp, void** buffer,
    void** buffer_userp, TRITONSERVER_MemoryType* actual_memory_type,
    int64_t* actual_memory_type_id);

// Completes the attributes of a buffer that the alloc function has just provided. buffer_attributes
// already has its size and type; the function may set further values.
typedef struct TRITONSERVER_Error* (*TRITONSERVER_ResponseAllocatorBufferAttributesFn_t)(
    struct TRITONSERVER_ResponseAllocator* allocator, const char* tensor_name,
    struct TRITONSERVER_BufferAttributes* buffer_attributes, void* userp, void* buffer_userp);

// Returns the memory in which an output would be allocated.
//   tensor_name  optional: null means outputs in general
//   byte_size    in, optional
//   memory_type, memory_type_id  in: the preferred memory; out: the memory that would be used
typedef struct TRITONSERVER_Error* (*TRITONSERVER_ResponseAllocatorQueryFn_t)(
    struct TRITONSERVER_ResponseAllocator* allocator, void* userp, const char* tensor_name,
    size_t* byte_size, TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id);

// Takes back the memory of one output when its response is deleted.
typedef struct TRITONSERVER_Error* (*TRITONSERVER_ResponseAllocatorReleaseFn_t)(
    struct TRITONSERVER_ResponseAllocator* allocator, void* buffer, void* buffer_userp,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id);

// Called once for each response, before its first output is allocated.
typedef struct TRITONSERVER_Error* (*TRITONSERVER_ResponseAllocatorStartFn_t)(
    struct TRITONSERVER_ResponseAllocator* allocator, void* userp);

// Creates an allocator from the caller's functions.
//   allocator  out; owned by the caller; outlives every request that uses it and their responses
//   start_fn   optional
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorNew(
    struct TRITONSERVER_ResponseAllocator** allocator,
    TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn,
    TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn,
    TRITONSERVER_ResponseAllocatorStartFn_t start_fn);

// Call it before the first request uses the allocator.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
    struct TRITONSERVER_ResponseAllocator* allocator,
    TRITONSERVER_ResponseAllocatorBufferAttributesFn_t buffer_attributes_fn);

// Call it before the first request uses the allocator. Without a query function, a backend that
// queries the memory of an output gets UNAVAILABLE.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorSetQueryFunction(
    struct TRITONSERVER_ResponseAllocator* allocator,
    TRITONSERVER_ResponseAllocatorQueryFn_t query_fn);

// Deletes an allocator that no request uses any more.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorDelete(
    struct TRITONSERVER_ResponseAllocator* allocator);

// ---- Traces
//
// A trace reports the activities of one request to functions of the caller, on the thread where
// each activity happens.

// Bits; several may be set.
typedef enum tritonserver_tracelevel_enum {
  TRITONSERVER_TRACE_LEVEL_DISABLED = 0,
  TRITONSERVER_TRACE_LEVEL_MIN = 1,  // former name of TIMESTAMPS
  TRITONSERVER_TRACE_LEVEL_MAX = 2,  // former name of TIMESTAMPS
  TRITONSERVER_TRACE_LEVEL_TIMESTAMPS = 4,
  TRITONSERVER_TRACE_LEVEL_TENSORS = 8,
} TRITONSERVER_InferenceTraceLevel;

// TENSOR_ activities are reported to the tensor function, all others to the activity function.
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

// Reports an activity of the request.
//   timestamp_ns  steady clock
typedef void (*TRITONSERVER_InferenceTraceActivityFn_t)(
    struct TRITONSERVER_InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity,
    uint64_t timestamp_ns, void* userp);

// Reports a tensor of the request.
//   name, base, shape  readable during the call only
typedef void (*TRITONSERVER_InferenceTraceTensorActivityFn_t)(
    struct TRITONSERVER_InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity,
    const char* name, TRITONSERVER_DataType datatype, const void* base, size_t byte_size,
    const int64_t* shape, uint64_t dim_count, TRITONSERVER_MemoryType memory_type,
    int64_t memory_type_id, void* userp);

// The trace, and every child that was spawned from it, belongs to the caller again, which deletes
// them.
typedef void (*TRITONSERVER_InferenceTraceReleaseFn_t)(struct TRITONSERVER_InferenceTrace* trace,
                                                       void* userp);

// Returns the name of the level. Static string.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_InferenceTraceLevelString(
    TRITONSERVER_InferenceTraceLevel level);

// Returns the name of the activity. Static string.
TRITONSERVER_DECLSPEC const char* TRITONSERVER_InferenceTraceActivityString(
    TRITONSERVER_InferenceTraceActivity activity);

// Creates a trace of timestamps.
//   trace      out; owned by the caller until it is passed to ServerInferAsync
//   level      TRITONSERVER_InferenceTraceLevel bits
//   parent_id  0 for none
//   trace_userp  optional; passed to the functions
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceNew(
    struct TRITONSERVER_InferenceTrace** trace, TRITONSERVER_InferenceTraceLevel level,
    uint64_t parent_id, TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void* trace_userp);

// Like InferenceTraceNew, with a function for tensors.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceTensorNew(
    struct TRITONSERVER_InferenceTrace** trace, TRITONSERVER_InferenceTraceLevel level,
    uint64_t parent_id, TRITONSERVER_InferenceTraceActivityFn_t activity_fn,
    TRITONSERVER_InferenceTraceTensorActivityFn_t tensor_activity_fn,
    TRITONSERVER_InferenceTraceReleaseFn_t release_fn, void* trace_userp);

// Adds an activity of the caller, which the activity function receives as CUSTOM_ACTIVITY.
//   timestamp  ns, steady clock
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceReportActivity(
    struct TRITONSERVER_InferenceTrace* trace, uint64_t timestamp, const char* activity_name);

// Deletes a trace. Allowed before the request is started and after the release function ran.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceDelete(
    struct TRITONSERVER_InferenceTrace* trace);

// Reads the trace's id, which is unique in the process.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceId(
    struct TRITONSERVER_InferenceTrace* trace, uint64_t* id);

// Reads the id of the parent trace; 0 for none.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceParentId(
    struct TRITONSERVER_InferenceTrace* trace, uint64_t* parent_id);

// Reads the model of the traced request.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceModelName(
    struct TRITONSERVER_InferenceTrace* trace, const char** model_name);

// Reads the version that was chosen for the request.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceModelVersion(
    struct TRITONSERVER_InferenceTrace* trace, int64_t* model_version);

// Reads the id of the request; "" if it has none.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceRequestId(
    struct TRITONSERVER_InferenceTrace* trace, const char** request_id);

// Creates a trace with the same functions for a request that serves this one, such as the step of
// an ensemble.
//   child_trace  out; owned by the caller until its request is started
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceSpawnChildTrace(
    struct TRITONSERVER_InferenceTrace* trace, struct TRITONSERVER_InferenceTrace** child_trace);

// Sets a text that is passed on with the trace: the context of distributed tracing.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceSetContext(
    struct TRITONSERVER_InferenceTrace* trace, const char* trace_context);

// Reads that text.
//   trace_context  out; empty if none was set
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceTraceContext(
    struct TRITONSERVER_InferenceTrace* trace, const char** trace_context);

// ---- Inference request: life cycle
//
// A request is built, passed to ServerInferAsync, and returned by its release callback. Then it may
// be changed and used again, or deleted. While it is in flight, only the Cancel functions may use
// it.

// Bits that mark the first and the last request of a sequence.
typedef enum tritonserver_requestflag_enum {
  TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1,
  TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2,
} TRITONSERVER_RequestFlag;

// How a backend releases a request.
typedef enum tritonserver_requestreleaseflag_enum {
  TRITONSERVER_REQUEST_RELEASE_ALL = 1,         // finally: it returns to its caller
  TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2,  // to be scheduled again (iterative sequences)
} TRITONSERVER_RequestReleaseFlag;

typedef enum tritonserver_responsecompleteflag_enum {
  TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1,  // no further response of this request follows
} TRITONSERVER_ResponseCompleteFlag;

// The request and the memory of its inputs belong to the caller again. Called on a thread of the
// host or of the backend, before or after the final response.
//   flags  TRITONSERVER_RequestReleaseFlag bits
typedef void (*TRITONSERVER_InferenceRequestReleaseFn_t)(
    struct TRITONSERVER_InferenceRequest* request, const uint32_t flags, void* userp);

// Delivers one response, which the caller now owns. Calls for one request never overlap.
//   response  null with the FINAL flag if the stream ends without a further response
//   flags     TRITONSERVER_ResponseCompleteFlag bits
typedef void (*TRITONSERVER_InferenceResponseCompleteFn_t)(
    struct TRITONSERVER_InferenceResponse* response, const uint32_t flags, void* userp);

// Creates a request to one model.
//   inference_request  out; owned by the caller
//   model_version      -1: the version that the model's policy chooses
//   Errors: NOT_FOUND, no such model or version; UNAVAILABLE, not ready.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestNew(
    struct TRITONSERVER_InferenceRequest** inference_request, struct TRITONSERVER_Server* server,
    const char* model_name, const int64_t model_version);

// Deletes a request. Not allowed while it is in flight. If the final response was sent but the
// release callback did not run yet, the request is deleted when the callback has returned, because
// its backend still uses it. Otherwise it is deleted at once.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestDelete(
    struct TRITONSERVER_InferenceRequest* inference_request);

// Asks the model to stop. Has no effect after the final response was sent. Any thread may call it
// from ServerInferAsync until the request is deleted. The final response still follows, with
// CANCELLED or with a result.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestCancel(
    struct TRITONSERVER_InferenceRequest* inference_request);

// Whether the request was cancelled. Any thread may call it, like Cancel.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestIsCancelled(
    struct TRITONSERVER_InferenceRequest* inference_request, bool* is_cancelled);

// Sets the release callback, which is required.
//   request_release_userp  optional; passed to the callback
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetReleaseCallback(
    struct TRITONSERVER_InferenceRequest* inference_request,
    TRITONSERVER_InferenceRequestReleaseFn_t request_release_fn, void* request_release_userp);

// Sets the response callback and the allocator, which are required.
//   response_allocator  outlives the request and its responses
//   response_allocator_userp, response_userp  optional; passed to the allocator's functions and to
//       the callback
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetResponseCallback(
    struct TRITONSERVER_InferenceRequest* inference_request,
    struct TRITONSERVER_ResponseAllocator* response_allocator, void* response_allocator_userp,
    TRITONSERVER_InferenceResponseCompleteFn_t response_fn, void* response_userp);

// ---- Inference request: attributes

// Reads the id; "" if none was set.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestId(
    struct TRITONSERVER_InferenceRequest* inference_request, const char** id);

// Sets the id: any text, which names the request in responses, traces and errors. It need not be
// unique.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetId(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* id);

// Reads the flags; 0 if none were set.
//   flags  out; TRITONSERVER_RequestFlag bits
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestFlags(
    struct TRITONSERVER_InferenceRequest* inference_request, uint32_t* flags);

// Sets TRITONSERVER_RequestFlag bits and replaces those set before.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetFlags(
    struct TRITONSERVER_InferenceRequest* inference_request, uint32_t flags);

// Reads the id of the request's sequence; 0 for none.
//   Errors: INVALID_ARG, the id is a string.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestCorrelationId(
    struct TRITONSERVER_InferenceRequest* inference_request, uint64_t* correlation_id);

// Reads the id of the request's sequence if it is a string.
//   correlation_id  out; "" for none
//   Errors: INVALID_ARG, the id is a number.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestCorrelationIdString(
    struct TRITONSERVER_InferenceRequest* inference_request, const char** correlation_id);

// Sets a number, which also replaces a string. 0 means no sequence.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetCorrelationId(
    struct TRITONSERVER_InferenceRequest* inference_request, uint64_t correlation_id);

// Sets a string, which also replaces a number. "" means no sequence; at most 128 bytes.
//   Errors: INVALID_ARG, too long.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_InferenceRequestSetCorrelationIdString(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* correlation_id);

// Deprecated; use InferenceRequestPriorityUInt64.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestPriority(
    struct TRITONSERVER_InferenceRequest* inference_request, uint32_t* priority);

// Reads the priority. 0: the model's default; level 1 is served first.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestPriorityUInt64(
    struct TRITONSERVER_InferenceRequest* inference_request, uint64_t* priority);

// Deprecated; use InferenceRequestSetPriorityUInt64.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetPriority(
    struct TRITONSERVER_InferenceRequest* inference_request, uint32_t priority);

// Sets the priority. A level above the model's highest counts as its default.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetPriorityUInt64(
    struct TRITONSERVER_InferenceRequest* inference_request, uint64_t priority);

// Reads the timeout. 0: the model's default.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestTimeoutMicroseconds(
    struct TRITONSERVER_InferenceRequest* inference_request, uint64_t* timeout_us);

// Sets the maximum time in the queue, if the model's queue policy allows requests to override it.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(
    struct TRITONSERVER_InferenceRequest* inference_request, uint64_t timeout_us);

// Adds a parameter that the model reads beside the tensors.
//   key, value  copied
//   Errors: INVALID_ARG, the key is reserved (the same for the next three functions).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetStringParameter(
    struct TRITONSERVER_InferenceRequest* request, const char* key, const char* value);

// Adds an integer parameter.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetIntParameter(
    struct TRITONSERVER_InferenceRequest* request, const char* key, const int64_t value);

// Adds a boolean parameter.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetBoolParameter(
    struct TRITONSERVER_InferenceRequest* request, const char* key, const bool value);

// Adds a floating-point parameter.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetDoubleParameter(
    struct TRITONSERVER_InferenceRequest* request, const char* key, const double value);

// ---- Inference request: tensors
//
// Input data is referenced, never copied. It stays readable and unchanged from ServerInferAsync to
// the release callback. Shapes include the batch dimension if the model batches. ServerInferAsync
// checks whether the tensors match the model.

// Adds an input without data.
//   shape  copied; every dimension >= 0
//   Errors: INVALID_ARG, a second input of the name, or a negative dimension.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddInput(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name,
    const TRITONSERVER_DataType datatype, const int64_t* shape, uint64_t dim_count);

// Adds an input whose type and shape come from the model's configuration. The model must have only
// this input.
//   Errors: INVALID_ARG, the model has several inputs, or the shape is not fixed.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRawInput(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name);

// Removes an input with its data.
//   Errors: INVALID_ARG, no such input (the same for every function here that takes an input's
//       name).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveInput(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name);

// Removes all inputs with their data.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllInputs(
    struct TRITONSERVER_InferenceRequest* inference_request);

// Appends a buffer to the data of an input. The backend may receive the data as several buffers.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputData(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name, const void* base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id);

// Appends a buffer with the same bytes in other memory, for instances of this host policy.
// Instances of other policies use the buffers that were given without a policy.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name, const void* base,
    size_t byte_size, TRITONSERVER_MemoryType memory_type, int64_t memory_type_id,
    const char* host_policy_name);

// Like AppendInputData.
//   buffer_attributes  copied; its byte size is the buffer's
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name, const void* base,
    struct TRITONSERVER_BufferAttributes* buffer_attributes);

// Removes the data of an input; the input itself stays.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllInputData(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name);

// Requests an output. Without any call, every output of the model is requested. Errors: INVALID_ARG
// for an output that was already requested. ServerInferAsync rejects an output that the model does
// not have.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRequestedOutput(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name);

// Undoes one AddRequestedOutput.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveRequestedOutput(
    struct TRITONSERVER_InferenceRequest* inference_request, const char* name);

// Undoes all of them, so that every output is requested again.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(
    struct TRITONSERVER_InferenceRequest* inference_request);

// ---- Inference response
//
// The result of a model. The receiver of the response callback owns it. Everything read from it,
// including output buffers, is valid as long as it.

// Deletes a response and passes its output buffers to the allocator's release function.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseDelete(
    struct TRITONSERVER_InferenceResponse* inference_response);

// Returns null if the model succeeded. Otherwise returns a copy of its error, which the caller
// owns; the response then has no outputs.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseError(
    struct TRITONSERVER_InferenceResponse* inference_response);

// Reads the model and version that produced the response.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseModel(
    struct TRITONSERVER_InferenceResponse* inference_response, const char** model_name,
    int64_t* model_version);

// Reads the request's id; "" if it has none.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseId(
    struct TRITONSERVER_InferenceResponse* inference_response, const char** request_id);

// Reads the number of parameters that the model added.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameterCount(
    struct TRITONSERVER_InferenceResponse* inference_response, uint32_t* count);

// Reads one parameter, in the order in which they were added.
//   vvalue  out; see TRITONSERVER_ParameterType
//   Errors: INVALID_ARG, index out of range (the same for every function here that takes an index).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameter(
    struct TRITONSERVER_InferenceResponse* inference_response, const uint32_t index,
    const char** name, TRITONSERVER_ParameterType* type, const void** vvalue);

// Reads the number of outputs.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputCount(
    struct TRITONSERVER_InferenceResponse* inference_response, uint32_t* count);

// Reads one output, in the order in which the backend created them.
//   base   out; null if byte_size is 0
//   userp  out; the buffer_userp of the alloc function
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutput(
    struct TRITONSERVER_InferenceResponse* inference_response, const uint32_t index,
    const char** name, TRITONSERVER_DataType* datatype, const int64_t** shape, uint64_t* dim_count,
    const void** base, size_t* byte_size, TRITONSERVER_MemoryType* memory_type,
    int64_t* memory_type_id, void** userp);

// Reads the label of one class of an output.
//   label  out; null if the model has no labels for it
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_InferenceResponseOutputClassificationLabel(
    struct TRITONSERVER_InferenceResponse* inference_response, const uint32_t index,
    const size_t class_index, const char** label);

// ---- Server options
//
// The options of a server. ServerNew reads them once; afterwards they may be deleted or used again.
// A setter checks its value if it can, otherwise ServerNew does. Defaults are those of the
// corresponding flags in `nereid --help`.

// How models are loaded. NONE: all at the start, none later. POLL: those in the repository, which
// is polled. EXPLICIT: the startup models, then by ServerLoadModel and ServerUnloadModel.
typedef enum tritonserver_modelcontrolmode_enum {
  TRITONSERVER_MODEL_CONTROL_NONE = 0,
  TRITONSERVER_MODEL_CONTROL_POLL = 1,
  TRITONSERVER_MODEL_CONTROL_EXPLICIT = 2,
} TRITONSERVER_ModelControlMode;

typedef enum tritonserver_ratelimitmode_enum {
  TRITONSERVER_RATE_LIMIT_OFF = 0,
  TRITONSERVER_RATE_LIMIT_EXEC_COUNT =
      1,  // within the resources, instances with fewer executions go first
} TRITONSERVER_RateLimitMode;

// Receives one line of the log, on the thread that wrote it. It must neither log nor throw.
//   timestamp_us  since the epoch
//   message       readable during the call only
typedef void (*TRITONSERVER_LogCallbackFn_t)(TRITONSERVER_LogLevel level, const char* filename,
                                             int line, uint64_t timestamp_us, const char* message,
                                             void* userp);

// Creates options.
//   options  out; owned by the caller, with every default set
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsNew(
    struct TRITONSERVER_ServerOptions** options);

// Deletes options.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsDelete(
    struct TRITONSERVER_ServerOptions* options);

// Sets the server's name in metadata, traces and statistics.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetServerId(
    struct TRITONSERVER_ServerOptions* options, const char* server_id);

// Adds a repository; at least one is required. Call it once for each.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelRepositoryPath(
    struct TRITONSERVER_ServerOptions* options, const char* model_repository_path);

// Sets how models are loaded.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelControlMode(
    struct TRITONSERVER_ServerOptions* options, TRITONSERVER_ModelControlMode mode);

// Adds a model to load at the start in EXPLICIT mode; "*" alone means all.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetStartupModel(
    struct TRITONSERVER_ServerOptions* options, const char* model_name);

// true: backends may not complete a model's configuration.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetStrictModelConfig(
    struct TRITONSERVER_ServerOptions* options, bool strict);

// If a model has `configs/<name>.pbtxt`, it is used instead of config.pbtxt.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelConfigName(
    struct TRITONSERVER_ServerOptions* options, const char* model_config_name);

// Whether instances wait for rate limiter resources.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetRateLimiterMode(
    struct TRITONSERVER_ServerOptions* options, TRITONSERVER_RateLimitMode mode);

// Sets the available amount of a resource. The default is the largest amount that one instance
// needs.
//   device  -1: shared by all devices
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsAddRateLimiterResource(
    struct TRITONSERVER_ServerOptions* options, const char* resource_name,
    const size_t resource_count, const int device);

// Sets the size of the pool of pinned memory; 0: no pool.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(struct TRITONSERVER_ServerOptions* options,
                                                      uint64_t size);

// Sets the size of the memory pool on this device; 0: no pool.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(struct TRITONSERVER_ServerOptions* options,
                                                    int gpu_device, uint64_t size);

// Sets the size of the address space that is reserved for growing state on this device.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(struct TRITONSERVER_ServerOptions* options,
                                                    int gpu_device,
                                                    size_t cuda_virtual_address_size);

// Deprecated; use SetCacheConfig("local", {"size": ...}).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetResponseCacheByteSize(
    struct TRITONSERVER_ServerOptions* options, uint64_t size);

// Selects the response cache; a server has at most one.
//   config_json  its settings as a JSON object, passed to the cache unchanged
//   Errors: INVALID_ARG, a second cache.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCacheConfig(
    struct TRITONSERVER_ServerOptions* options, const char* cache_name, const char* config_json);

// Sets the directory of `<name>/libtritoncache_<name>.so`.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCacheDirectory(
    struct TRITONSERVER_ServerOptions* options, const char* cache_dir);

// Devices with a lower compute capability are not used.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(
    struct TRITONSERVER_ServerOptions* options, double cc);

// true: ServerNew fails if a startup model fails to load.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetExitOnError(
    struct TRITONSERVER_ServerOptions* options, bool exit);

// true: the server is ready only while every model is ready.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetStrictReadiness(
    struct TRITONSERVER_ServerOptions* options, bool strict);

// Sets the seconds that ServerStop waits for requests in flight.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetExitTimeout(
    struct TRITONSERVER_ServerOptions* options, unsigned int timeout);

// Sets the number of threads that copy inputs and outputs; 0: the instance's own thread.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error*
TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(struct TRITONSERVER_ServerOptions* options,
                                                      unsigned int thread_count);

// Sets how many models load at the same time.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelLoadThreadCount(
    struct TRITONSERVER_ServerOptions* options, unsigned int thread_count);

// Sets how often a failed load is retried.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelLoadRetryCount(
    struct TRITONSERVER_ServerOptions* options, unsigned int retry_count);

// true: several repositories may have models of the same name.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelNamespacing(
    struct TRITONSERVER_ServerOptions* options, bool enable_namespace);

// Whether devices may access each other's memory.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetEnablePeerAccess(
    struct TRITONSERVER_ServerOptions* options, bool enable_peer_access);

// Sets the log file; "" is the standard error stream. Takes effect immediately, for the whole
// process (the same for the next five functions).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogFile(
    struct TRITONSERVER_ServerOptions* options, const char* file);

// Enables or disables informational lines.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogInfo(
    struct TRITONSERVER_ServerOptions* options, bool log);

// Enables or disables warnings.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogWarn(
    struct TRITONSERVER_ServerOptions* options, bool log);

// Enables or disables errors.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogError(
    struct TRITONSERVER_ServerOptions* options, bool log);

// Sets the format of a line's beginning.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogFormat(
    struct TRITONSERVER_ServerOptions* options, const TRITONSERVER_LogFormat format);

// Sets the verbosity.
//   level  0: no verbose lines; higher levels write more
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogVerbose(
    struct TRITONSERVER_ServerOptions* options, int level);

// Passes every log line to a function, in addition to the file. Takes effect immediately, for the
// whole process. An addition to version 1.34 that newer embedding programs import; a plug-in cannot
// rely on it.
//   callback  optional: null removes the callback
//   userp     optional; passed to the callback
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogCallback(
    struct TRITONSERVER_ServerOptions* options, TRITONSERVER_LogCallbackFn_t callback, void* userp);

// Enables or disables all metrics.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetMetrics(
    struct TRITONSERVER_ServerOptions* options, bool metrics);

// Enables GPU metrics; requires SetMetrics (the same for the next two functions).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetGpuMetrics(
    struct TRITONSERVER_ServerOptions* options, bool gpu_metrics);

// Enables gauges of the machine's CPU and memory.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCpuMetrics(
    struct TRITONSERVER_ServerOptions* options, bool cpu_metrics);

// Sets the interval at which gauges of the machine are updated.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetMetricsInterval(
    struct TRITONSERVER_ServerOptions* options, uint64_t metrics_interval_ms);

// Sets the directory of `<name>/libtriton_<name>.so`, which is searched after the model's own
// folders.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetBackendDirectory(
    struct TRITONSERVER_ServerOptions* options, const char* backend_dir);

// Sets the directory of `<name>/libtritonrepoagent_<name>.so`.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetRepoAgentDirectory(
    struct TRITONSERVER_ServerOptions* options, const char* repoagent_dir);

// Rejects loads while more than this fraction of the device's memory is in use.
//   fraction  0 to 1
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(
    struct TRITONSERVER_ServerOptions* options, const TRITONSERVER_InstanceGroupKind kind,
    const int device_id, const double fraction);

// Adds a setting that backends read by TRITONBACKEND_BackendConfig.
//   backend_name  "": for every backend
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetBackendConfig(
    struct TRITONSERVER_ServerOptions* options, const char* backend_name, const char* setting,
    const char* value);

// Sets the CPU affinity of the threads of instances with this host policy.
//   setting  "numa-node" or "cpu-cores"
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetHostPolicy(
    struct TRITONSERVER_ServerOptions* options, const char* policy_name, const char* setting,
    const char* value);

// Adds a setting of metrics.
//   name  the kind of metric; "": for all
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetMetricsConfig(
    struct TRITONSERVER_ServerOptions* options, const char* name, const char* setting,
    const char* value);

// ---- Server: life cycle and health
//
// Any number of threads may use a server concurrently.

// Starts a server. Returns when its startup models are loaded or have failed.
//   server  out; owned by the caller
//   Errors: INVALID_ARG, contradictory options; INTERNAL, a startup model failed and exit-on-error
//       is set.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerNew(
    struct TRITONSERVER_Server** server, struct TRITONSERVER_ServerOptions* options);

// Deletes a server; stops it first if it runs. Not allowed while a request is in flight, nor from a
// callback.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerDelete(
    struct TRITONSERVER_Server* server);

// Rejects new requests, waits up to the exit timeout for those in flight, and unloads every model.
//   Errors: INTERNAL, the timeout passed.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerStop(
    struct TRITONSERVER_Server* server);

// Replaces the exit timeout of the options, in seconds, for a later ServerStop.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerSetExitTimeout(
    struct TRITONSERVER_Server* server, unsigned int timeout);

// Whether the server can respond at all.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerIsLive(
    struct TRITONSERVER_Server* server, bool* live);

// Whether the server can serve; with strict readiness, whether every model can, too.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerIsReady(
    struct TRITONSERVER_Server* server, bool* ready);

// Whether this model can serve now.
//   model_version  -1: the version that the policy chooses (the same for all functions below)
//   Errors: NOT_FOUND, no such model.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelIsReady(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    bool* ready);

// ---- Server: repositories and models
//
// Loading and unloading block until they are done; requests are served meanwhile. During a reload,
// the old version serves until the new one is ready, and permanently if the new one fails.

// Bits.
typedef enum tritonserver_modelindexflag_enum {
  TRITONSERVER_INDEX_FLAG_READY = 1,  // only models that are ready
} TRITONSERVER_ModelIndexFlag;

// Adds a repository in which ServerLoadModel then finds models; EXPLICIT mode only.
//   name_mapping   optional; STRING parameters: name is the folder, value the model's name
//   Errors: UNSUPPORTED, another control mode; ALREADY_EXISTS, already registered.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerRegisterModelRepository(
    struct TRITONSERVER_Server* server, const char* repository_path,
    const struct TRITONSERVER_Parameter** name_mapping, const uint32_t mapping_count);

// Removes a repository. Loaded models stay.
//   Errors: UNSUPPORTED, another control mode; NOT_FOUND, not registered.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerUnregisterModelRepository(
    struct TRITONSERVER_Server* server, const char* repository_path);

// Polls the repositories once and loads and unloads what changed; POLL mode only.
//   Errors: UNAVAILABLE, another control mode.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerPollModelRepository(
    struct TRITONSERVER_Server* server);

// Lists the models of the repositories, as a JSON array of {name, version, state, reason}.
//   flags        TRITONSERVER_ModelIndexFlag bits
//   model_index  out; owned by the caller
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelIndex(
    struct TRITONSERVER_Server* server, uint32_t flags, struct TRITONSERVER_Message** model_index);

// Loads or reloads a model, after the models that it depends on; EXPLICIT mode only.
//   Errors: UNSUPPORTED, another control mode; INVALID_ARG or INTERNAL, the load failed for the
//       reason in the text; NOT_FOUND, no such folder.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerLoadModel(
    struct TRITONSERVER_Server* server, const char* model_name);

// Like ServerLoadModel.
//   parameters  STRING "config": a configuration as JSON that replaces config.pbtxt; BYTES
//       "file:<version>/<name>": files that replace the model's folder, together with "config"
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerLoadModelWithParameters(
    struct TRITONSERVER_Server* server, const char* model_name,
    const struct TRITONSERVER_Parameter** parameters, const uint64_t parameter_count);

// Unloads every version when its requests are done; EXPLICIT mode only.
//   Errors: UNSUPPORTED, another control mode.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerUnloadModel(
    struct TRITONSERVER_Server* server, const char* model_name);

// The same, and also unloads the models that it depends on, unless other models need them.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerUnloadModelAndDependents(
    struct TRITONSERVER_Server* server, const char* model_name);

// ---- Server: descriptions
//
// Every call creates a new message, which the caller deletes.

typedef enum tritonserver_batchflag_enum {
  TRITONSERVER_BATCH_UNKNOWN = 1,    // unknown
  TRITONSERVER_BATCH_FIRST_DIM = 2,  // the first dimension of every tensor is the batch
} TRITONSERVER_ModelBatchFlag;

typedef enum tritonserver_txn_property_flag_enum {
  TRITONSERVER_TXN_ONE_TO_ONE = 1,  // exactly one response for each request
  TRITONSERVER_TXN_DECOUPLED = 2,   // any number of responses
} TRITONSERVER_ModelTxnPropertyFlag;

// Returns how the model batches.
//   flags  out; TRITONSERVER_ModelBatchFlag bits
//   voidp  optional; reserved, set to null
//   Errors: NOT_FOUND, no such model or version; UNAVAILABLE, not ready (the same for every
//       function here).
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelBatchProperties(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    uint32_t* flags, void** voidp);

// Returns how many responses the model sends.
//   txn_flags  out; TRITONSERVER_ModelTxnPropertyFlag bits
//   voidp      optional; reserved, set to null
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelTransactionProperties(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    uint32_t* txn_flags, void** voidp);

// Returns the server's name, version and extensions.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerMetadata(
    struct TRITONSERVER_Server* server, struct TRITONSERVER_Message** server_metadata);

// Returns the model's versions, platform, inputs and outputs.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelMetadata(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    struct TRITONSERVER_Message** model_metadata);

// Returns counts and times of requests, executions and batches.
//   model_name     "": all models
//   model_version  -1: all versions
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelStatistics(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    struct TRITONSERVER_Message** model_stats);

// Returns the configuration in use, completed and normalised.
//   config_version  1
//   Errors: also UNSUPPORTED, another config_version.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerModelConfig(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    const uint32_t config_version, struct TRITONSERVER_Message** model_config);

// Creates a snapshot of all metrics.
//   metrics  out; owned by the caller (MetricsDelete)
//   Errors: UNAVAILABLE, metrics are disabled.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerMetrics(
    struct TRITONSERVER_Server* server, struct TRITONSERVER_Metrics** metrics);

// ---- Server: inference

// Starts a request. On success the host owns it until its release callback. With an error it stays
// the caller's and none of its callbacks runs. Callbacks may run before this function returns.
//   trace  optional; owned by the host from the call until its release callback, even if the call
//       fails. A trace that belongs or belonged to another inference is left unchanged.
//   Errors: INVALID_ARG, tensors that do not match the model: the text names the tensor, the
//       expected and the given value; UNAVAILABLE, not ready or queue full; UNSUPPORTED.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(
    struct TRITONSERVER_Server* server, struct TRITONSERVER_InferenceRequest* inference_request,
    struct TRITONSERVER_InferenceTrace* trace);

// ---- Metrics of a plug-in
//
// They appear on the metrics page beside the host's. Several threads may change counters, gauges
// and histograms concurrently.

typedef enum TRITONSERVER_metrickind_enum {
  TRITONSERVER_METRIC_KIND_COUNTER = 0,    // increases only
  TRITONSERVER_METRIC_KIND_GAUGE = 1,      // increases, decreases, or is set
  TRITONSERVER_METRIC_KIND_HISTOGRAM = 2,  // observations, counted in buckets
} TRITONSERVER_MetricKind;

// Creates a family: a name and a kind, under which metrics differ by labels.
//   family  out; owned by the caller. For a name that already exists, a handle to the same family
//   Errors: INVALID_ARG, the name is invalid or exists with another kind; UNSUPPORTED, metrics are
//       not built in.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricFamilyNew(
    struct TRITONSERVER_MetricFamily** family, const TRITONSERVER_MetricKind kind, const char* name,
    const char* description);

// Deletes a family, after its metrics.
//   Errors: INTERNAL, the family still has metrics.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricFamilyDelete(
    struct TRITONSERVER_MetricFamily* family);

// Reads the kind of the family.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_GetMetricFamilyKind(
    struct TRITONSERVER_MetricFamily* family, TRITONSERVER_MetricKind* kind);

// Creates the arguments of a metric beyond its labels.
//   args  out; owned by the caller, may be deleted after MetricNewWithArgs
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricArgsNew(
    struct TRITONSERVER_MetricArgs** args);

// Sets the buckets of a histogram.
//   buckets  copied; ascending upper bounds
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricArgsSetHistogram(
    struct TRITONSERVER_MetricArgs* args, const double* buckets, const uint64_t buckets_count);

// Deletes the arguments.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricArgsDelete(
    struct TRITONSERVER_MetricArgs* args);

// Creates a metric: one set of labels of a family. For the same labels, returns a handle to the
// same metric.
//   metric  out; owned by the caller
//   labels  STRING parameters; copied
//   Errors: INVALID_ARG, a label of another type.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricNew(
    struct TRITONSERVER_Metric** metric, struct TRITONSERVER_MetricFamily* family,
    const struct TRITONSERVER_Parameter** labels, const uint64_t label_count);

// Like MetricNew, for histograms.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricNewWithArgs(
    struct TRITONSERVER_Metric** metric, struct TRITONSERVER_MetricFamily* family,
    const struct TRITONSERVER_Parameter** labels, const uint64_t label_count,
    const struct TRITONSERVER_MetricArgs* args);

// Deletes the handle; with the last handle, the metric is removed from the page.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricDelete(
    struct TRITONSERVER_Metric* metric);

// Reads a counter or a gauge.
//   Errors: UNSUPPORTED, a histogram.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricValue(
    struct TRITONSERVER_Metric* metric, double* value);

// Adds to a counter or a gauge.
//   value  not negative for a counter
//   Errors: INVALID_ARG, a counter and a negative value; UNSUPPORTED, a histogram.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricIncrement(
    struct TRITONSERVER_Metric* metric, double value);

// Sets a gauge.
//   Errors: UNSUPPORTED, not a gauge.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricSet(
    struct TRITONSERVER_Metric* metric, double value);

// Adds an observation to a histogram.
//   Errors: UNSUPPORTED, not a histogram.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_MetricObserve(
    struct TRITONSERVER_Metric* metric, double value);

// Reads the kind of the metric's family.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* TRITONSERVER_GetMetricKind(
    struct TRITONSERVER_Metric* metric, TRITONSERVER_MetricKind* kind);

#ifdef __cplusplus
}  // extern "C"
#endif
