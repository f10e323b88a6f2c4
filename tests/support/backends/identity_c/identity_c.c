// An identity backend in plain C on the raw API: output OUTPUT<x> is a copy of input INPUT<x>. It
// does not batch, and it reports statistics as a backend should. Benchmarks measure the host with
// it, and it proves that the headers are valid C.
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

#define MAX_NAME_BYTES 256

// Returns the error of `call`, if any.
#define RETURN_IF_ERROR(call)                   \
  do {                                          \
    struct TRITONSERVER_Error* error_ = (call); \
    if (error_ != NULL) return error_;          \
  } while (0)

static uint64_t NowNs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct TRITONSERVER_Error* MakeOutputName(const char* input_name, char* output_name) {
  if (strncmp(input_name, "INPUT", 5) != 0 || strlen(input_name) + 2 > MAX_NAME_BYTES) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG,
                                 "identity_c: expected inputs named INPUT<x>");
  }
  snprintf(output_name, MAX_NAME_BYTES, "OUTPUT%s", input_name + 5);
  return NULL;
}

// Sets `is_requested` if the client requested the output.
static struct TRITONSERVER_Error* IsRequested(struct TRITONBACKEND_Request* request,
                                              const char* output_name, bool* is_requested) {
  uint32_t count = 0;
  RETURN_IF_ERROR(TRITONBACKEND_RequestOutputCount(request, &count));
  *is_requested = false;
  for (uint32_t i = 0; i < count && !*is_requested; ++i) {
    const char* name = NULL;
    RETURN_IF_ERROR(TRITONBACKEND_RequestOutputName(request, i, &name));
    *is_requested = strcmp(name, output_name) == 0;
  }
  return NULL;
}

static struct TRITONSERVER_Error* CopyInput(struct TRITONBACKEND_Request* request,
                                            struct TRITONBACKEND_Response* response,
                                            uint32_t index) {
  struct TRITONBACKEND_Input* input = NULL;
  const char* input_name = NULL;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  const int64_t* shape = NULL;
  uint32_t dims_count = 0, buffer_count = 0;
  uint64_t size_bytes = 0;
  char output_name[MAX_NAME_BYTES];
  bool is_requested = false;
  RETURN_IF_ERROR(TRITONBACKEND_RequestInputByIndex(request, index, &input));
  RETURN_IF_ERROR(TRITONBACKEND_InputProperties(input, &input_name, &datatype, &shape, &dims_count,
                                                &size_bytes, &buffer_count));
  RETURN_IF_ERROR(MakeOutputName(input_name, output_name));
  RETURN_IF_ERROR(IsRequested(request, output_name, &is_requested));
  if (!is_requested) return NULL;

  struct TRITONBACKEND_Output* output = NULL;
  void* target = NULL;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  RETURN_IF_ERROR(
      TRITONBACKEND_ResponseOutput(response, &output, output_name, datatype, shape, dims_count));
  RETURN_IF_ERROR(
      TRITONBACKEND_OutputBuffer(output, &target, size_bytes, &memory_type, &memory_type_id));
  if (memory_type == TRITONSERVER_MEMORY_GPU) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED,
                                 "identity_c: expected output buffers in host memory");
  }
  for (uint32_t i = 0; i < buffer_count; ++i) {
    const void* buffer = NULL;
    uint64_t buffer_bytes = 0;
    memory_type = TRITONSERVER_MEMORY_CPU;
    memory_type_id = 0;
    RETURN_IF_ERROR(
        TRITONBACKEND_InputBuffer(input, i, &buffer, &buffer_bytes, &memory_type, &memory_type_id));
    if (memory_type == TRITONSERVER_MEMORY_GPU) {
      return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED,
                                   "identity_c: expected input buffers in host memory");
    }
    if (buffer_bytes > 0) memcpy(target, buffer, buffer_bytes);
    target = (char*)target + buffer_bytes;
  }
  return NULL;
}

static struct TRITONSERVER_Error* CopyInputs(struct TRITONBACKEND_Request* request,
                                             struct TRITONBACKEND_Response* response) {
  uint32_t count = 0;
  RETURN_IF_ERROR(TRITONBACKEND_RequestInputCount(request, &count));
  for (uint32_t i = 0; i < count; ++i) RETURN_IF_ERROR(CopyInput(request, response, i));
  return NULL;
}

// Answers and releases one request. Every error is sent as its response.
static void HandleRequest(struct TRITONBACKEND_ModelInstance* instance,
                          struct TRITONBACKEND_Request* request, uint64_t start_ns) {
  struct TRITONBACKEND_Response* response = NULL;
  struct TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, request);
  if (error == NULL) error = CopyInputs(request, response);
  const uint64_t end_ns = NowNs();
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceReportStatistics(
      instance, request, error == NULL, start_ns, start_ns, end_ns, end_ns));
  if (response != NULL) {
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  }
  TRITONSERVER_ErrorDelete(error);
  TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONBACKEND_Request** requests,
    const uint32_t request_count) {
  const uint64_t start_ns = NowNs();
  for (uint32_t i = 0; i < request_count; ++i) HandleRequest(instance, requests[i], start_ns);
  const uint64_t end_ns = NowNs();
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceReportBatchStatistics(
      instance, request_count, start_ns, start_ns, end_ns, end_ns));
  return NULL;
}
