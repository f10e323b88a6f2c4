// The backend API: how a backend, a shared object `libtriton_<name>.so`, is loaded and run. The
// functions marked ISPEC at the end of this header are the backend's to implement; the host
// implements all others. `nereid/backend.h` is the C++ way to write one.
//
// The rules at the top of tritonserver.h hold here too. Beyond them:
//  - An error that a backend returns from an entry point, or hands to ResponseSend, is read by the
//    host: entry points give theirs away, ResponseSend copies.
//  - Requests, responses and factories may be used on any thread, also after Execute returned; one
//    object by one thread at a time.
//  - What is read from a request (names, shapes, buffers, parameters) lives until the request is
//    released.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

// On what the host exports, and on what a plug-in exports.
#define TRITONBACKEND_DECLSPEC __attribute__((visibility("default")))
#define TRITONBACKEND_ISPEC TRITONBACKEND_DECLSPEC

// Of this header; see TRITONBACKEND_ApiVersion.
#define TRITONBACKEND_API_VERSION_MAJOR 1
#define TRITONBACKEND_API_VERSION_MINOR 19

// Opaque handles.
struct TRITONBACKEND_MemoryManager;
struct TRITONBACKEND_Input;
struct TRITONBACKEND_Output;
struct TRITONBACKEND_State;
struct TRITONBACKEND_Request;
struct TRITONBACKEND_ResponseFactory;
struct TRITONBACKEND_Response;
struct TRITONBACKEND_Backend;
struct TRITONBACKEND_Model;
struct TRITONBACKEND_ModelInstance;
struct TRITONBACKEND_ModelInstanceResponseStatistics;
struct TRITONBACKEND_BackendAttribute;
struct TRITONBACKEND_Batcher;

// ---- Types

// Where files lie: in a folder of the local file system, whose path is the location.
typedef enum TRITONBACKEND_artifacttype_enum {
  TRITONBACKEND_ARTIFACT_FILESYSTEM = 0,
} TRITONBACKEND_ArtifactType;

// How instances share threads: BLOCKING gives each instance its own; with DEVICE_BLOCKING all
// instances on a device share one, so they must not block on the device.
typedef enum TRITONBACKEND_execpolicy_enum {
  TRITONBACKEND_EXECUTION_BLOCKING = 0,
  TRITONBACKEND_EXECUTION_DEVICE_BLOCKING = 1,
} TRITONBACKEND_ExecutionPolicy;

// The host's version: a backend refuses in Initialize another major or an earlier minor than its
// own.
//   major, minor  out
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major,
                                                                           uint32_t* minor);

// ---- Memory manager
//
// The host's memory for a backend's own use.

// Takes memory of the host.
//   buffer  out; the backend's, MemoryManagerFree gives it back
//   Errors: UNAVAILABLE, no memory; UNSUPPORTED, no such memory on this host: fall back to CPU.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_MemoryManagerAllocate(
    struct TRITONBACKEND_MemoryManager* manager, void** buffer,
    const TRITONSERVER_MemoryType memory_type, const int64_t memory_type_id,
    const uint64_t byte_size);

// Gives it back.
//   memory_type, memory_type_id  those of its allocation
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_MemoryManagerFree(
    struct TRITONBACKEND_MemoryManager* manager, void* buffer,
    const TRITONSERVER_MemoryType memory_type, const int64_t memory_type_id);

// ---- Inputs
//
// One tensor of one request.

// What the tensor is, and in how many pieces it came.
//   name, datatype, shape, dims_count, byte_size, buffer_count  out, each optional; shape has the
//       batch dimension where the model batches; byte_size is that of the data, all buffers
//       together
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InputProperties(
    struct TRITONBACKEND_Input* input, const char** name, TRITONSERVER_DataType* datatype,
    const int64_t** shape, uint32_t* dims_count, uint64_t* byte_size, uint32_t* buffer_count);

// The same for the data of one host policy.
//   host_policy_name  optional: null means the default, which also stands in where nothing was
//       given for the policy
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InputPropertiesForHostPolicy(
    struct TRITONBACKEND_Input* input, const char* host_policy_name, const char** name,
    TRITONSERVER_DataType* datatype, const int64_t** shape, uint32_t* dims_count,
    uint64_t* byte_size, uint32_t* buffer_count);

// One piece of the tensor's bytes, in order. A tensor without bytes has no piece, or one of size
// 0.
//   buffer  out; read-only; null when buffer_byte_size is 0
//   memory_type, memory_type_id  in: what the backend would like; out: where it lies
//   Errors: INVALID_ARG, index out of range.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InputBuffer(
    struct TRITONBACKEND_Input* input, const uint32_t index, const void** buffer,
    uint64_t* buffer_byte_size, TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id);

// The same for the data of one host policy.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InputBufferForHostPolicy(
    struct TRITONBACKEND_Input* input, const char* host_policy_name, const uint32_t index,
    const void** buffer, uint64_t* buffer_byte_size, TRITONSERVER_MemoryType* memory_type,
    int64_t* memory_type_id);

// The same, with everything known of the piece's memory.
//   buffer_attributes  out; the request's, not to be deleted
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InputBufferAttributes(
    struct TRITONBACKEND_Input* input, const uint32_t index, const void** buffer,
    struct TRITONSERVER_BufferAttributes** buffer_attributes);

// ---- Requests
//
// Execute is handed requests; returning success from it takes them over. Each then gets at least
// one response with the FINAL flag, its statistics are reported, and it is released: in any
// order, on any thread, also after Execute returned.

// The client's name for the request.
//   id  out; "" when the client gave none, never null
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestId(
    struct TRITONBACKEND_Request* request, const char** id);

// Whether the client gave up. Cheap enough to ask in every step.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(
    struct TRITONBACKEND_Request* request, bool* is_cancelled);

// The sequence that it belongs to.
//   id  out; 0 for none
//   Errors: INVALID_ARG, the id is a text.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationId(
    struct TRITONBACKEND_Request* request, uint64_t* id);

// The same for an id that is a text.
//   id  out; "" for none
//   Errors: INVALID_ARG, the id is a number.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationIdString(
    struct TRITONBACKEND_Request* request, const char** id);

// Start and end of a sequence.
//   flags  out; TRITONSERVER_RequestFlag bits
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestFlags(
    struct TRITONBACKEND_Request* request, uint32_t* flags);

// The client's time limit.
//   timeout  out; 0 for none
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    struct TRITONBACKEND_Request* request, uint64_t* timeout);

// How many parameters the client gave.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestParameterCount(
    struct TRITONBACKEND_Request* request, uint32_t* count);

// One of them.
//   vvalue  out; as TRITONSERVER_ParameterType says
//   Errors: INVALID_ARG, index out of range (as for every function here that takes one).
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestParameter(
    struct TRITONBACKEND_Request* request, const uint32_t index, const char** key,
    TRITONSERVER_ParameterType* type, const void** vvalue);

// Control and state tensors that the host added count too.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(
    struct TRITONBACKEND_Request* request, uint32_t* count);

// In no certain order, the same for the life of the request.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestInputName(
    struct TRITONBACKEND_Request* request, const uint32_t index, const char** input_name);

// An input by its name.
//   input  out; the request's
//   Errors: INVALID_ARG, the request has no such input: an optional one was left out.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestInput(
    struct TRITONBACKEND_Request* request, const char* name, struct TRITONBACKEND_Input** input);

// An input by its place, in the order of RequestInputName.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(
    struct TRITONBACKEND_Request* request, const uint32_t index,
    struct TRITONBACKEND_Input** input);

// The outputs that the client wants; all of the model's when it named none.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(
    struct TRITONBACKEND_Request* request, uint32_t* count);

// The name of one of them.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(
    struct TRITONBACKEND_Request* request, const uint32_t index, const char** output_name);

// Asks where an output would lie, before there is a response.
//   byte_size  in, optional
//   memory_type, memory_type_id  in: what the backend would like; out: what it would get
//   Errors: UNAVAILABLE, the client cannot say.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestOutputBufferProperties(
    struct TRITONBACKEND_Request* request, const char* name, size_t* byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id);

// The trace to which a backend may report activities of its own.
//   trace  out; null when the request is not traced; the request's
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestTrace(
    struct TRITONBACKEND_Request* request, struct TRITONSERVER_InferenceTrace** trace);

// Gives the request back; its pointers are dead afterwards. On error it stays the backend's.
//   release_flags  TRITONSERVER_RequestReleaseFlag bits
//   Errors: INVALID_ARG, RESCHEDULE on a model whose sequences are not iterative.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestRelease(
    struct TRITONBACKEND_Request* request, uint32_t release_flags);

// ---- Response factories
//
// A way to answer that outlives the request.

// Makes a factory for a request that was not released yet.
//   factory  out; the backend's, deleted after its last use; keeps the model alive
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryNew(
    struct TRITONBACKEND_ResponseFactory** factory, struct TRITONBACKEND_Request* request);

// Gives a factory up.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryDelete(
    struct TRITONBACKEND_ResponseFactory* factory);

// Ends the stream of a decoupled model without a further response.
//   send_flags  TRITONSERVER_ResponseCompleteFlag bits
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseFactorySendFlags(
    struct TRITONBACKEND_ResponseFactory* factory, const uint32_t send_flags);

// As RequestIsCancelled, after the request's release too.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryIsCancelled(
    struct TRITONBACKEND_ResponseFactory* factory, bool* is_cancelled);

// ---- Responses
//
// A response is made, given its outputs and parameters, then sent or deleted.

// Calls the client's allocator start function.
//   response  out; the backend's until ResponseSend or ResponseDelete
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseNew(
    struct TRITONBACKEND_Response** response, struct TRITONBACKEND_Request* request);

// The same, also after the request's release.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseNewFromFactory(
    struct TRITONBACKEND_Response** response, struct TRITONBACKEND_ResponseFactory* factory);

// For a response that was not sent.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseDelete(
    struct TRITONBACKEND_Response* response);

// Parameters are kept in the order of the calls; a name may come twice.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseSetStringParameter(
    struct TRITONBACKEND_Response* response, const char* name, const char* value);

// Adds a number.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseSetIntParameter(
    struct TRITONBACKEND_Response* response, const char* name, const int64_t value);

// Adds a truth value.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseSetBoolParameter(
    struct TRITONBACKEND_Response* response, const char* name, const bool value);

// Adds a number with a fraction.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseSetDoubleParameter(
    struct TRITONBACKEND_Response* response, const char* name, const double value);

// Adds an output. One that the client did not ask for should not be added.
//   output  out; the response's, valid also when more outputs are added
//   shape   copied; has the batch dimension where the model batches
//   Errors: INVALID_ARG, the model has no such output, or of another type or shape.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(
    struct TRITONBACKEND_Response* response, struct TRITONBACKEND_Output** output, const char* name,
    const TRITONSERVER_DataType datatype, const int64_t* shape, const uint32_t dims_count);

// Sends the response, and always takes it over. Its callback runs in this call, or later where
// the model preserves the order of requests.
//   send_flags  0, or FINAL with the last one; exactly one response, with FINAL, unless the model
//       is decoupled
//   error       optional; copied, stays the caller's
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseSend(
    struct TRITONBACKEND_Response* response, const uint32_t send_flags,
    struct TRITONSERVER_Error* error);

// Asks the client for the memory of an output.
//   buffer  out; to be filled before ResponseSend; null is possible for 0 bytes
//   memory_type, memory_type_id  in: what the backend would like; out: what it got
//   Errors: ALREADY_EXISTS, a second call; UNAVAILABLE, no memory; what else the client's allocator
//       says.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(
    struct TRITONBACKEND_Output* output, void** buffer, const uint64_t buffer_byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id);

// After OutputBuffer.
//   buffer_attributes  out; the response's
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_OutputBufferAttributes(
    struct TRITONBACKEND_Output* output, struct TRITONSERVER_BufferAttributes** buffer_attributes);

// Reads back an output that was added.
//   name, datatype, shape, dim_count  out; die with the response
//   Errors: INVALID_ARG, index out of range.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InferenceResponseOutput(
    struct TRITONBACKEND_Response* response, const uint32_t index, const char** name,
    TRITONSERVER_DataType* datatype, const int64_t** shape, uint64_t* dim_count);

// The same by name.
//   Errors: NOT_FOUND, no such output.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InferenceResponseOutputByName(
    struct TRITONBACKEND_Response* response, const char* name, TRITONSERVER_DataType* datatype,
    const int64_t** shape, uint64_t* dim_count);

// ---- States
//
// Implicit state of a sequence: comes as an input, goes as a state.

// Makes a state of the request's sequence.
//   state  out; the request's
//   Errors: INVALID_ARG, the configuration has no such state output, or the request no sequence.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_StateNew(
    struct TRITONBACKEND_State** state, struct TRITONBACKEND_Request* request, const char* name,
    const TRITONSERVER_DataType datatype, const int64_t* shape, const uint32_t dims_count);

// Makes the state what the sequence's next request gets as input.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_StateUpdate(
    struct TRITONBACKEND_State* state);

// Memory for the state, reused while its size stays the same.
//   memory_type, memory_type_id  in: what the backend would like; out: what it got
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_StateBuffer(
    struct TRITONBACKEND_State* state, void** buffer, const uint64_t buffer_byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id);

// Everything known of that memory.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_StateBufferAttributes(
    struct TRITONBACKEND_State* state, struct TRITONSERVER_BufferAttributes** buffer_attributes);

// ---- Backends
//
// One object for each library, from its first model to the end of the server.

// The name by which models ask for it.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendName(
    struct TRITONBACKEND_Backend* backend, const char** name);

// The settings of this backend: {"cmdline": {"<key>": "<value>"}}.
//   backend_config  out; the host's, not to be deleted
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendConfig(
    struct TRITONBACKEND_Backend* backend, struct TRITONSERVER_Message** backend_config);

// How its instances share threads.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendExecutionPolicy(
    struct TRITONBACKEND_Backend* backend, TRITONBACKEND_ExecutionPolicy* policy);

// In TRITONBACKEND_Initialize only.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendSetExecutionPolicy(
    struct TRITONBACKEND_Backend* backend, TRITONBACKEND_ExecutionPolicy policy);

// Where the backend's own files are.
//   location  out; the folder in which the library was found
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendArtifacts(
    struct TRITONBACKEND_Backend* backend, TRITONBACKEND_ArtifactType* artifact_type,
    const char** location);

// The host's memory, for the functions above.
//   manager  out; the host's
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendMemoryManager(
    struct TRITONBACKEND_Backend* backend, struct TRITONBACKEND_MemoryManager** manager);

// The backend's pointer.
//   state  out; what SetState was given, null before
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendState(
    struct TRITONBACKEND_Backend* backend, void** state);

// A pointer of the backend's that the host keeps and never touches.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendSetState(
    struct TRITONBACKEND_Backend* backend, void* state);

// Instances for a model that configures none; the first group that the machine can serve is
// taken.
//   device_ids  optional
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    struct TRITONBACKEND_BackendAttribute* backend_attributes,
    const TRITONSERVER_InstanceGroupKind kind, const uint64_t count, const uint64_t* device_ids,
    const uint64_t id_count);

// true: instances of one model may be initialised at the same time.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    struct TRITONBACKEND_BackendAttribute* backend_attributes, bool enabled);

// ---- Models
//
// One object for each loaded version of a model.

// As clients call it.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelName(
    struct TRITONBACKEND_Model* model, const char** name);

// The number of the version's folder.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelVersion(
    struct TRITONBACKEND_Model* model, uint64_t* version);

// Where the model's files are.
//   location  out; the model's folder, versions are below it
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelRepository(
    struct TRITONBACKEND_Model* model, TRITONBACKEND_ArtifactType* artifact_type,
    const char** location);

// The configuration as JSON, normalised and with every default.
//   config_version  1
//   model_config    out; the caller's (MessageDelete)
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelConfig(
    struct TRITONBACKEND_Model* model, const uint32_t config_version,
    struct TRITONSERVER_Message** model_config);

// Whether the backend may complete the configuration.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(
    struct TRITONBACKEND_Model* model, bool* auto_complete_config);

// Completes the configuration: inputs, outputs, max_batch_size, the transaction policy, and the
// scheduler if none was set; the rest is ignored. In TRITONBACKEND_ModelInitialize only. Read it
// again afterwards.
//   model_config  stays the caller's
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(
    struct TRITONBACKEND_Model* model, const uint32_t config_version,
    struct TRITONSERVER_Message* model_config);

// The server itself, to call other models by the functions of tritonserver.h, in any entry
// point.
//   server  out; not to be deleted
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelServer(
    struct TRITONBACKEND_Model* model, struct TRITONSERVER_Server** server);

// The backend that runs it.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBackend(
    struct TRITONBACKEND_Model* model, struct TRITONBACKEND_Backend** backend);

// The backend's pointer.
//   state  out; what SetState was given, null before
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelState(
    struct TRITONBACKEND_Model* model, void** state);

// A pointer of the backend's that the host keeps and never touches.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelSetState(
    struct TRITONBACKEND_Model* model, void* state);

// What the model takes, one entry for each kind of memory; replaces the report before.
//   usage  stays the caller's
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelReportMemoryUsage(
    struct TRITONBACKEND_Model* model, struct TRITONSERVER_BufferAttributes** usage,
    uint32_t usage_size);

// ---- Model instances
//
// Execute runs on an instance, never twice at once on the same one, always on the instance's own
// thread.

// Unique within the model.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceName(
    struct TRITONBACKEND_ModelInstance* instance, const char** name);

// CPU, GPU or MODEL; never AUTO.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(
    struct TRITONBACKEND_ModelInstance* instance, TRITONSERVER_InstanceGroupKind* kind);

// The device of a GPU instance, else 0.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceDeviceId(
    struct TRITONBACKEND_ModelInstance* instance, int32_t* device_id);

// The settings of the instance's host policy.
//   host_policy  out; {"<policy>": {"<key>": "<value>"}}; the host's
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceHostPolicy(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONSERVER_Message** host_policy);

// true: it is initialised and never executed.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceIsPassive(
    struct TRITONBACKEND_ModelInstance* instance, bool* is_passive);

// How many optimisation profiles its group names.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceProfileCount(
    struct TRITONBACKEND_ModelInstance* instance, uint32_t* count);

// One of them.
//   Errors: INVALID_ARG, index out of range.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceProfileName(
    struct TRITONBACKEND_ModelInstance* instance, const uint32_t index, const char** profile_name);

// How many further devices its group names.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSecondaryDeviceCount(
    struct TRITONBACKEND_ModelInstance* instance, uint32_t* count);

// One of them.
//   Errors: INVALID_ARG, index out of range.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(struct TRITONBACKEND_ModelInstance* instance,
                                                     uint32_t index, const char** kind,
                                                     int64_t* id);

// The model that it is an instance of.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONBACKEND_Model** model);

// The backend's pointer.
//   state  out; what SetState was given, null before
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(
    struct TRITONBACKEND_ModelInstance* instance, void** state);

// A pointer of the backend's that the host keeps and never touches.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(
    struct TRITONBACKEND_ModelInstance* instance, void* state);

// As ModelReportMemoryUsage, for what this instance takes beyond the model.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportMemoryUsage(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONSERVER_BufferAttributes** usage,
    uint32_t usage_size);

// ---- Statistics
//
// Reporting is the backend's duty: what it leaves out stays 0 in statistics and metrics. Times
// are steady-clock nanoseconds, in the order of the parameters.

// Once for each request, before its release.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONBACKEND_Request* request,
    const bool success, const uint64_t exec_start_ns, const uint64_t compute_start_ns,
    const uint64_t compute_end_ns, const uint64_t exec_end_ns);

// Once for each execution.
//   batch_size  rows of all its requests together
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    struct TRITONBACKEND_ModelInstance* instance, const uint64_t batch_size,
    const uint64_t exec_start_ns, const uint64_t compute_start_ns, const uint64_t compute_end_ns,
    const uint64_t exec_end_ns);

// The facts of one response of a decoupled model: set, reported, set anew for the next response,
// deleted.
//   response_statistics  out; the backend's
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    struct TRITONBACKEND_ModelInstanceResponseStatistics** response_statistics);

// Gives the object up.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics);

// Required.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    struct TRITONBACKEND_ModelInstance* model_instance);

// Required; it counts the responses of its request.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    struct TRITONBACKEND_ResponseFactory* response_factory);

// When work on this response began.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    uint64_t response_start);

// Left out for the flags that end a stream without a response.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    uint64_t compute_output_start);

// When it was ready to be sent.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    uint64_t response_end);

// That the response was an error.
//   error  optional; stays the caller's and lives until the report. CANCELLED counts as cancelled,
//       others as failed
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    struct TRITONSERVER_Error* error);

// Once for each response; the object may be filled anew.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceReportResponseStatistics(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics);

// ---- Entry points of a backend
//
// Exported by the backend; all but ModelInstanceExecute are optional. The host holds no lock of
// its own while one runs, except that backends are initialised one at a time. An error's text
// becomes the reason why the model is not available. A Finalize is called for every Initialize
// that was called, failed or not: state may be null.

// Once for each library, before the first of its models. On a load thread.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_Initialize(
    struct TRITONBACKEND_Backend* backend);

// When the server ends. The library stays loaded.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_Finalize(
    struct TRITONBACKEND_Backend* backend);

// After Initialize: tells the host about the backend by the BackendAttribute functions. An error
// is ignored.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(
    struct TRITONBACKEND_Backend* backend,
    struct TRITONBACKEND_BackendAttribute* backend_attributes);

// Before any instance; may call ModelSetConfig and the server. On a load thread.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(
    struct TRITONBACKEND_Model* model);

// After the last request was released and the last instance finalised.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(
    struct TRITONBACKEND_Model* model);

// On a load thread; at the same time for several instances only with
// ParallelModelInstanceLoading.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(
    struct TRITONBACKEND_ModelInstance* instance);

// When the instance's thread has ended.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(
    struct TRITONBACKEND_ModelInstance* instance);

// Required. The requests of one batch. On the instance's thread; may return before they are
// answered.
//   requests  the array is the host's and dies with the call
//   Errors: with an error every request stays the host's, which answers and releases them: none may
//       have been answered or released.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONBACKEND_Request** requests,
    const uint32_t request_count);

// Whether it can serve right now; beside Execute, on a frontend's thread.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReady(
    struct TRITONBACKEND_ModelInstance* instance);

// ---- Custom batching
//
// Exported by `batchstrategy.so`, or another library that the model's configuration names: all
// five or none. On the thread that forms batches: they must be quick.

// Once for each model, at its load.
//   batcher  out; a pointer of the library's
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatcherInitialize(
    struct TRITONBACKEND_Batcher** batcher, struct TRITONBACKEND_Model* model);

// When the model is unloaded.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatcherFinalize(
    struct TRITONBACKEND_Batcher* batcher);

// A new batch begins.
//   userp  out; a pointer of the library's that goes with the batch
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatchInitialize(
    const struct TRITONBACKEND_Batcher* batcher, void** userp);

// Whether the request still fits; false closes the batch.
//   request  for reading only
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatchIncludeRequest(
    struct TRITONBACKEND_Request* request, void* userp, bool* should_include);

// The batch is complete.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatchFinalize(void* userp);

#ifdef __cplusplus
}  // extern "C"
#endif
