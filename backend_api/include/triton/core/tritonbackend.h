// The backend API: how the host loads and runs a backend, a shared library `libtriton_<name>.so`.
// The backend implements the functions marked ISPEC at the end of this header; the host implements
// all others. `nereid/backend.h` is the C++ interface for writing backends.
//
// The rules at the top of tritonserver.h apply here too. In addition:
//  - The host reads an error that a backend returns from an entry point or passes to ResponseSend.
//    Entry points transfer the ownership of the error; ResponseSend copies it.
//  - Requests, responses and factories may be used on any thread, also after Execute has returned;
//    one thread at a time uses an object.
//  - What is read from a request (names, shapes, buffers, parameters) is valid until the request is
//    released.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

// For functions that the host exports, and for functions that a plug-in exports.
#define TRITONBACKEND_DECLSPEC __attribute__((visibility("default")))
#define TRITONBACKEND_ISPEC TRITONBACKEND_DECLSPEC

// The version of this header; see TRITONBACKEND_ApiVersion.
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

// The kind of a location: a folder of the local file system, given by its path.
typedef enum TRITONBACKEND_artifacttype_enum {
  TRITONBACKEND_ARTIFACT_FILESYSTEM = 0,
} TRITONBACKEND_ArtifactType;

// How instances share threads. BLOCKING: each instance has its own thread. DEVICE_BLOCKING: all
// instances on a device share one thread, so they must not block on the device.
typedef enum TRITONBACKEND_execpolicy_enum {
  TRITONBACKEND_EXECUTION_BLOCKING = 0,
  TRITONBACKEND_EXECUTION_DEVICE_BLOCKING = 1,
} TRITONBACKEND_ExecutionPolicy;

// The host's version of this API. In Initialize, a backend rejects another major version and a
// minor version below its own.
//   major, minor  out
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major,
                                                                           uint32_t* minor);

// ---- Memory manager
//
// Memory of the host for a backend's own use.

// Allocates memory.
//   buffer  out; owned by the backend, freed by MemoryManagerFree
//   Errors: UNAVAILABLE, no memory; UNSUPPORTED, no such memory on this host: fall back to CPU.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_MemoryManagerAllocate(
    struct TRITONBACKEND_MemoryManager* manager, void** buffer,
    const TRITONSERVER_MemoryType memory_type, const int64_t memory_type_id,
    const uint64_t byte_size);

// Frees memory.
//   memory_type, memory_type_id  those of its allocation
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_MemoryManagerFree(
    struct TRITONBACKEND_MemoryManager* manager, void* buffer,
    const TRITONSERVER_MemoryType memory_type, const int64_t memory_type_id);

// ---- Inputs
//
// An input is one tensor of one request.

// Reads the properties of the tensor.
//   name, datatype, shape, dims_count, byte_size, buffer_count  out, each optional; shape includes
//       the batch dimension if the model batches; byte_size is the size of all buffers together
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InputProperties(
    struct TRITONBACKEND_Input* input, const char** name, TRITONSERVER_DataType* datatype,
    const int64_t** shape, uint32_t* dims_count, uint64_t* byte_size, uint32_t* buffer_count);

// The same for the data of one host policy.
//   host_policy_name  optional: null means the default, which is also used if the policy has no
//       data
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InputPropertiesForHostPolicy(
    struct TRITONBACKEND_Input* input, const char* host_policy_name, const char** name,
    TRITONSERVER_DataType* datatype, const int64_t** shape, uint32_t* dims_count,
    uint64_t* byte_size, uint32_t* buffer_count);

// Returns one buffer of the tensor's bytes; the buffers hold the bytes in order. A tensor without
// bytes has no buffer, or one of size 0.
//   buffer  out; read-only; null if buffer_byte_size is 0
//   memory_type, memory_type_id  in: the memory that the backend prefers; out: the buffer's memory
//   Errors: INVALID_ARG, index out of range.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InputBuffer(
    struct TRITONBACKEND_Input* input, const uint32_t index, const void** buffer,
    uint64_t* buffer_byte_size, TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id);

// The same for the data of one host policy.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InputBufferForHostPolicy(
    struct TRITONBACKEND_Input* input, const char* host_policy_name, const uint32_t index,
    const void** buffer, uint64_t* buffer_byte_size, TRITONSERVER_MemoryType* memory_type,
    int64_t* memory_type_id);

// The same, with all attributes of the buffer.
//   buffer_attributes  out; owned by the request, not to be deleted
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InputBufferAttributes(
    struct TRITONBACKEND_Input* input, const uint32_t index, const void** buffer,
    struct TRITONSERVER_BufferAttributes** buffer_attributes);

// ---- Requests
//
// Execute receives requests, and the backend owns them if it returns success. Each request then
// needs at least one response with the FINAL flag, a report of its statistics, and a release. These
// may happen in any order, on any thread, and after Execute has returned.

// Reads the id that the client gave the request.
//   id  out; "" if there is none, never null
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestId(
    struct TRITONBACKEND_Request* request, const char** id);

// Whether the client cancelled the request. Cheap enough to call in every step.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(
    struct TRITONBACKEND_Request* request, bool* is_cancelled);

// Reads the id of the request's sequence.
//   id  out; 0 for none
//   Errors: INVALID_ARG, the id is a string.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationId(
    struct TRITONBACKEND_Request* request, uint64_t* id);

// Reads the id of the request's sequence if it is a string.
//   id  out; "" for none
//   Errors: INVALID_ARG, the id is a number.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationIdString(
    struct TRITONBACKEND_Request* request, const char** id);

// Reads the flags that mark start and end of a sequence.
//   flags  out; TRITONSERVER_RequestFlag bits
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestFlags(
    struct TRITONBACKEND_Request* request, uint32_t* flags);

// Reads the client's timeout.
//   timeout  out; 0 for none
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    struct TRITONBACKEND_Request* request, uint64_t* timeout);

// Reads the number of parameters of the request.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestParameterCount(
    struct TRITONBACKEND_Request* request, uint32_t* count);

// Reads one parameter.
//   vvalue  out; see TRITONSERVER_ParameterType
//   Errors: INVALID_ARG, index out of range (the same for every function here that takes an index).
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestParameter(
    struct TRITONBACKEND_Request* request, const uint32_t index, const char** key,
    TRITONSERVER_ParameterType* type, const void** vvalue);

// Reads the number of inputs, including control and state tensors that the host added.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(
    struct TRITONBACKEND_Request* request, uint32_t* count);

// Reads the name of one input. The order is arbitrary, but constant during the life of the request.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestInputName(
    struct TRITONBACKEND_Request* request, const uint32_t index, const char** input_name);

// Returns an input by its name.
//   input  out; owned by the request
//   Errors: INVALID_ARG, the request has no such input: an optional one was left out.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestInput(
    struct TRITONBACKEND_Request* request, const char* name, struct TRITONBACKEND_Input** input);

// Returns an input by its index, in the order of RequestInputName.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(
    struct TRITONBACKEND_Request* request, const uint32_t index,
    struct TRITONBACKEND_Input** input);

// Reads the number of requested outputs: all outputs of the model if the client named none.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(
    struct TRITONBACKEND_Request* request, uint32_t* count);

// Reads the name of one requested output.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(
    struct TRITONBACKEND_Request* request, const uint32_t index, const char** output_name);

// Queries the memory in which an output would be allocated, before a response exists.
//   byte_size  in, optional
//   memory_type, memory_type_id  in: the memory that the backend prefers; out: the memory that
//       would be used
//   Errors: UNAVAILABLE, the client cannot tell.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestOutputBufferProperties(
    struct TRITONBACKEND_Request* request, const char* name, size_t* byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id);

// Returns the trace to which a backend may report activities of its own.
//   trace  out; owned by the request; null if the request is not traced
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestTrace(
    struct TRITONBACKEND_Request* request, struct TRITONSERVER_InferenceTrace** trace);

// Releases the request, whose pointers are invalid afterwards. With an error it stays the
// backend's.
//   release_flags  TRITONSERVER_RequestReleaseFlag bits
//   Errors: INVALID_ARG, RESCHEDULE for a model whose sequences are not iterative.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_RequestRelease(
    struct TRITONBACKEND_Request* request, uint32_t release_flags);

// ---- Response factories
//
// A factory creates responses, also after the release of the request.

// Creates a factory for a request that was not released yet.
//   factory  out; owned by the backend, deleted after its last use; keeps the model loaded
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryNew(
    struct TRITONBACKEND_ResponseFactory** factory, struct TRITONBACKEND_Request* request);

// Deletes a factory.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryDelete(
    struct TRITONBACKEND_ResponseFactory* factory);

// Ends the stream of a decoupled model without a further response.
//   send_flags  TRITONSERVER_ResponseCompleteFlag bits
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseFactorySendFlags(
    struct TRITONBACKEND_ResponseFactory* factory, const uint32_t send_flags);

// Like RequestIsCancelled, also after the request's release.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryIsCancelled(
    struct TRITONBACKEND_ResponseFactory* factory, bool* is_cancelled);

// ---- Responses
//
// A response is created, receives its outputs and parameters, and is then sent or deleted.

// Creates a response; calls the start function of the client's allocator.
//   response  out; owned by the backend until ResponseSend or ResponseDelete
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseNew(
    struct TRITONBACKEND_Response** response, struct TRITONBACKEND_Request* request);

// The same, also after the request's release.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseNewFromFactory(
    struct TRITONBACKEND_Response** response, struct TRITONBACKEND_ResponseFactory* factory);

// Deletes a response that was not sent.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseDelete(
    struct TRITONBACKEND_Response* response);

// Adds a string parameter. Parameters keep the order of the calls; a name may occur twice.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseSetStringParameter(
    struct TRITONBACKEND_Response* response, const char* name, const char* value);

// Adds an integer parameter.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseSetIntParameter(
    struct TRITONBACKEND_Response* response, const char* name, const int64_t value);

// Adds a boolean parameter.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseSetBoolParameter(
    struct TRITONBACKEND_Response* response, const char* name, const bool value);

// Adds a floating-point parameter.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseSetDoubleParameter(
    struct TRITONBACKEND_Response* response, const char* name, const double value);

// Adds an output. Do not add outputs that the client did not request.
//   output  out; owned by the response, stays valid when further outputs are added
//   shape   copied; includes the batch dimension if the model batches
//   Errors: INVALID_ARG, the model has no such output, or one of another type or shape.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(
    struct TRITONBACKEND_Response* response, struct TRITONBACKEND_Output** output, const char* name,
    const TRITONSERVER_DataType datatype, const int64_t* shape, const uint32_t dims_count);

// Sends the response and takes ownership of it, also if it fails. Its callback runs during this
// call, or later if the model preserves the order of requests.
//   send_flags  0, or FINAL for the last response. A model that is not decoupled sends exactly one
//       response, with FINAL
//   error       optional; copied, stays the caller's
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ResponseSend(
    struct TRITONBACKEND_Response* response, const uint32_t send_flags,
    struct TRITONSERVER_Error* error);

// Requests memory for an output from the client's allocator.
//   buffer  out; to be filled before ResponseSend; may be null for 0 bytes
//   memory_type, memory_type_id  in: the memory that the backend prefers; out: the buffer's memory
//   Errors: ALREADY_EXISTS, a second call; UNAVAILABLE, no memory; any other error of the client's
//       allocator.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(
    struct TRITONBACKEND_Output* output, void** buffer, const uint64_t buffer_byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id);

// Returns the attributes of the buffer; call it after OutputBuffer.
//   buffer_attributes  out; owned by the response
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_OutputBufferAttributes(
    struct TRITONBACKEND_Output* output, struct TRITONSERVER_BufferAttributes** buffer_attributes);

// Reads back an output that was added.
//   name, datatype, shape, dim_count  out; valid as long as the response
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
// The implicit state of a sequence: the model receives it as an input and returns it as a state.

// Creates a state of the request's sequence.
//   state  out; owned by the request
//   Errors: INVALID_ARG, the configuration has no such state output, or the request has no
//       sequence.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_StateNew(
    struct TRITONBACKEND_State** state, struct TRITONBACKEND_Request* request, const char* name,
    const TRITONSERVER_DataType datatype, const int64_t* shape, const uint32_t dims_count);

// Makes the state the input of the sequence's next request.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_StateUpdate(
    struct TRITONBACKEND_State* state);

// Returns memory for the state, which is reused while its size stays the same.
//   memory_type, memory_type_id  in: the memory that the backend prefers; out: the buffer's memory
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_StateBuffer(
    struct TRITONBACKEND_State* state, void** buffer, const uint64_t buffer_byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id);

// Returns the attributes of that memory.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_StateBufferAttributes(
    struct TRITONBACKEND_State* state, struct TRITONSERVER_BufferAttributes** buffer_attributes);

// ---- Backends
//
// There is one object for each library, from the load of its first model to the end of the server.

// Reads the name by which model configurations select the backend.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendName(
    struct TRITONBACKEND_Backend* backend, const char** name);

// Returns the settings of this backend: {"cmdline": {"<key>": "<value>"}}.
//   backend_config  out; owned by the host, not to be deleted
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendConfig(
    struct TRITONBACKEND_Backend* backend, struct TRITONSERVER_Message** backend_config);

// Reads how the backend's instances share threads.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendExecutionPolicy(
    struct TRITONBACKEND_Backend* backend, TRITONBACKEND_ExecutionPolicy* policy);

// Sets the execution policy; only in TRITONBACKEND_Initialize.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendSetExecutionPolicy(
    struct TRITONBACKEND_Backend* backend, TRITONBACKEND_ExecutionPolicy policy);

// Returns the location of the backend's own files.
//   location  out; the folder in which the library was found
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendArtifacts(
    struct TRITONBACKEND_Backend* backend, TRITONBACKEND_ArtifactType* artifact_type,
    const char** location);

// Returns the memory manager for the functions above.
//   manager  out; owned by the host
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendMemoryManager(
    struct TRITONBACKEND_Backend* backend, struct TRITONBACKEND_MemoryManager** manager);

// Reads the backend's pointer.
//   state  out; the pointer of SetState, null before
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendState(
    struct TRITONBACKEND_Backend* backend, void** state);

// Stores a pointer of the backend, which the host does not use.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_BackendSetState(
    struct TRITONBACKEND_Backend* backend, void* state);

// Adds an instance group for models that configure none. The host takes the first group that the
// machine can serve.
//   device_ids  optional
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    struct TRITONBACKEND_BackendAttribute* backend_attributes,
    const TRITONSERVER_InstanceGroupKind kind, const uint64_t count, const uint64_t* device_ids,
    const uint64_t id_count);

// true: the host may initialise several instances of one model at once.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    struct TRITONBACKEND_BackendAttribute* backend_attributes, bool enabled);

// ---- Models
//
// One object for each loaded version of a model.

// Reads the name by which clients call the model.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelName(
    struct TRITONBACKEND_Model* model, const char** name);

// Reads the version: the number of the version's folder.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelVersion(
    struct TRITONBACKEND_Model* model, uint64_t* version);

// Returns the location of the model's files.
//   location  out; the model's folder, which contains the version folders
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelRepository(
    struct TRITONBACKEND_Model* model, TRITONBACKEND_ArtifactType* artifact_type,
    const char** location);

// Returns the configuration as JSON, normalised and with every default.
//   config_version  1
//   model_config    out; owned by the caller (MessageDelete)
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelConfig(
    struct TRITONBACKEND_Model* model, const uint32_t config_version,
    struct TRITONSERVER_Message** model_config);

// Whether the backend may complete the configuration.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(
    struct TRITONBACKEND_Model* model, bool* auto_complete_config);

// Completes the configuration: inputs, outputs, max_batch_size, the transaction policy, and the
// scheduler if none was set; all other fields are ignored. Only in TRITONBACKEND_ModelInitialize.
// Read the configuration again afterwards.
//   model_config  stays the caller's
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(
    struct TRITONBACKEND_Model* model, const uint32_t config_version,
    struct TRITONSERVER_Message* model_config);

// Returns the server, for calling other models by the functions of tritonserver.h, in any entry
// point.
//   server  out; not to be deleted
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelServer(
    struct TRITONBACKEND_Model* model, struct TRITONSERVER_Server** server);

// Returns the backend that runs the model.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBackend(
    struct TRITONBACKEND_Model* model, struct TRITONBACKEND_Backend** backend);

// Reads the backend's pointer for the model.
//   state  out; the pointer of SetState, null before
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelState(
    struct TRITONBACKEND_Model* model, void** state);

// Stores a pointer of the backend, which the host does not use.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelSetState(
    struct TRITONBACKEND_Model* model, void* state);

// Reports the memory that the model uses: one entry for each kind of memory. Replaces the previous
// report.
//   usage  stays the caller's
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelReportMemoryUsage(
    struct TRITONBACKEND_Model* model, struct TRITONSERVER_BufferAttributes** usage,
    uint32_t usage_size);

// ---- Model instances
//
// The host calls Execute for an instance on the instance's own thread, never twice at once.

// Reads the name, which is unique within the model.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceName(
    struct TRITONBACKEND_ModelInstance* instance, const char** name);

// Reads the kind: CPU, GPU or MODEL; never AUTO.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(
    struct TRITONBACKEND_ModelInstance* instance, TRITONSERVER_InstanceGroupKind* kind);

// Reads the device of a GPU instance; 0 for other kinds.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceDeviceId(
    struct TRITONBACKEND_ModelInstance* instance, int32_t* device_id);

// Returns the settings of the instance's host policy.
//   host_policy  out; {"<policy>": {"<key>": "<value>"}}; owned by the host
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceHostPolicy(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONSERVER_Message** host_policy);

// true: the instance is initialised but never executed.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceIsPassive(
    struct TRITONBACKEND_ModelInstance* instance, bool* is_passive);

// Reads the number of optimisation profiles in the instance's group.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceProfileCount(
    struct TRITONBACKEND_ModelInstance* instance, uint32_t* count);

// Reads the name of one profile.
//   Errors: INVALID_ARG, index out of range.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceProfileName(
    struct TRITONBACKEND_ModelInstance* instance, const uint32_t index, const char** profile_name);

// Reads the number of secondary devices in the instance's group.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSecondaryDeviceCount(
    struct TRITONBACKEND_ModelInstance* instance, uint32_t* count);

// Reads one secondary device.
//   Errors: INVALID_ARG, index out of range.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(struct TRITONBACKEND_ModelInstance* instance,
                                                     uint32_t index, const char** kind,
                                                     int64_t* id);

// Returns the instance's model.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONBACKEND_Model** model);

// Reads the backend's pointer for the instance.
//   state  out; the pointer of SetState, null before
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(
    struct TRITONBACKEND_ModelInstance* instance, void** state);

// Stores a pointer of the backend, which the host does not use.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(
    struct TRITONBACKEND_ModelInstance* instance, void* state);

// Like ModelReportMemoryUsage, for the memory of this instance beyond the model's.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportMemoryUsage(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONSERVER_BufferAttributes** usage,
    uint32_t usage_size);

// ---- Statistics
//
// The backend must report statistics: what it does not report stays 0 in statistics and metrics.
// Times are nanoseconds of the steady clock, ascending in the order of the parameters.

// Call it once for each request, before its release.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONBACKEND_Request* request,
    const bool success, const uint64_t exec_start_ns, const uint64_t compute_start_ns,
    const uint64_t compute_end_ns, const uint64_t exec_end_ns);

// Call it once for each execution.
//   batch_size  sum of the batch sizes of all its requests
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    struct TRITONBACKEND_ModelInstance* instance, const uint64_t batch_size,
    const uint64_t exec_start_ns, const uint64_t compute_start_ns, const uint64_t compute_end_ns,
    const uint64_t exec_end_ns);

// Creates an object for the statistics of one response of a decoupled model. It is filled and
// reported, filled again for the next response, and finally deleted.
//   response_statistics  out; owned by the backend
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    struct TRITONBACKEND_ModelInstanceResponseStatistics** response_statistics);

// Deletes the object.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics);

// Required.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    struct TRITONBACKEND_ModelInstance* model_instance);

// Required; the factory identifies the request, whose responses it counts.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    struct TRITONBACKEND_ResponseFactory* response_factory);

// Sets when the work on this response began.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    uint64_t response_start);

// Sets when writing the outputs began. Not set if a stream ends without a response.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    uint64_t compute_output_start);

// Sets when the response was ready to be sent.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    uint64_t response_end);

// Marks the response as an error.
//   error  optional; stays the caller's and valid until the report. CANCELLED counts as cancelled,
//       other codes as failed
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    struct TRITONSERVER_Error* error);

// Call it once for each response; afterwards the object may be filled again.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error*
TRITONBACKEND_ModelInstanceReportResponseStatistics(
    struct TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics);

// ---- Entry points of a backend
//
// The backend exports them; all but ModelInstanceExecute are optional. The host holds no lock while
// one runs, except that it initialises one backend at a time. An error's text becomes the reason
// why the model is unavailable. Every call of an Initialize function is followed by a call of its
// Finalize function, even if it failed: the state may then be null.

// Called once for each library, before the first of its models, on a load thread.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_Initialize(
    struct TRITONBACKEND_Backend* backend);

// Called when the server ends. The library stays loaded.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_Finalize(
    struct TRITONBACKEND_Backend* backend);

// Called after Initialize: sets attributes of the backend by the BackendAttribute functions. An
// error is ignored.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(
    struct TRITONBACKEND_Backend* backend,
    struct TRITONBACKEND_BackendAttribute* backend_attributes);

// Called before any instance is created, on a load thread. May call ModelSetConfig and the server.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(
    struct TRITONBACKEND_Model* model);

// Called after the last request was released and the last instance was finalised.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(
    struct TRITONBACKEND_Model* model);

// Called on a load thread. Several instances are initialised concurrently only with
// ParallelModelInstanceLoading.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(
    struct TRITONBACKEND_ModelInstance* instance);

// Called after the instance's thread has ended.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(
    struct TRITONBACKEND_ModelInstance* instance);

// Required. Executes the requests of one batch on the instance's thread. May return before the
// requests are answered.
//   requests  array of the host, valid during the call
//   Errors: with an error every request stays the host's, which answers and releases it. The
//       backend must not have answered or released any of them.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONBACKEND_Request** requests,
    const uint32_t request_count);

// Whether the instance can serve now. Called on a frontend's thread, concurrently with Execute.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReady(
    struct TRITONBACKEND_ModelInstance* instance);

// ---- Custom batching
//
// Exported by `batchstrategy.so`, or by another library that the model's configuration names: all
// five functions or none. They are called on the thread that forms batches, so they must be fast.

// Called once for each model, when it is loaded.
//   batcher  out; a pointer of the library
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatcherInitialize(
    struct TRITONBACKEND_Batcher** batcher, struct TRITONBACKEND_Model* model);

// Called when the model is unloaded.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatcherFinalize(
    struct TRITONBACKEND_Batcher* batcher);

// Called when a new batch begins.
//   userp  out; a pointer of the library for this batch
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatchInitialize(
    const struct TRITONBACKEND_Batcher* batcher, void** userp);

// Whether the request still fits into the batch; false closes the batch.
//   request  read-only
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatchIncludeRequest(
    struct TRITONBACKEND_Request* request, void* userp, bool* should_include);

// Called when the batch is complete.
TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatchFinalize(void* userp);

#ifdef __cplusplus
}  // extern "C"
#endif
