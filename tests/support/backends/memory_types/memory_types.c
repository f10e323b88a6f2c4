// A backend that reports memory types. Its output MEMORY_TYPES is INT32[4]: the memory type of the
// input's first buffer; 1 if the host allocates pinned memory; 1 if it allocates GPU memory
// (otherwise 0, and the log contains the reason); and the memory type of the output itself, for
// which the backend prefers the GPU.
#include <stdio.h>
#include <string.h>

#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

#define RETURN_IF_ERROR(call)                   \
  do {                                          \
    struct TRITONSERVER_Error* error_ = (call); \
    if (error_ != NULL) return error_;          \
  } while (0)

static int CanAllocate(struct TRITONBACKEND_MemoryManager* manager, TRITONSERVER_MemoryType type) {
  void* buffer = NULL;
  struct TRITONSERVER_Error* error =
      TRITONBACKEND_MemoryManagerAllocate(manager, &buffer, type, 0, 1 << 20);
  if (error != NULL) {
    TRITONSERVER_ErrorDelete(TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, __FILE__, __LINE__,
                                                     TRITONSERVER_ErrorMessage(error)));
    TRITONSERVER_ErrorDelete(error);
    return 0;
  }
  if (type == TRITONSERVER_MEMORY_CPU_PINNED) memset(buffer, 1, 1 << 20);
  error = TRITONBACKEND_MemoryManagerFree(manager, buffer, type, 0);
  TRITONSERVER_ErrorDelete(error);
  return error == NULL;
}

static struct TRITONSERVER_Error* WriteMemoryTypes(struct TRITONBACKEND_ModelInstance* instance,
                                                   struct TRITONBACKEND_Request* request,
                                                   struct TRITONBACKEND_Response* response) {
  struct TRITONBACKEND_Model* model = NULL;
  struct TRITONBACKEND_Backend* backend = NULL;
  struct TRITONBACKEND_MemoryManager* manager = NULL;
  RETURN_IF_ERROR(TRITONBACKEND_ModelInstanceModel(instance, &model));
  RETURN_IF_ERROR(TRITONBACKEND_ModelBackend(model, &backend));
  RETURN_IF_ERROR(TRITONBACKEND_BackendMemoryManager(backend, &manager));

  struct TRITONBACKEND_Input* input = NULL;
  const void* base = NULL;
  uint64_t size = 0;
  TRITONSERVER_MemoryType input_type = TRITONSERVER_MEMORY_CPU,
                          output_type = TRITONSERVER_MEMORY_GPU;
  int64_t id = 0;
  RETURN_IF_ERROR(TRITONBACKEND_RequestInputByIndex(request, 0, &input));
  RETURN_IF_ERROR(TRITONBACKEND_InputBuffer(input, 0, &base, &size, &input_type, &id));

  struct TRITONBACKEND_Output* output = NULL;
  void* target = NULL;
  const int64_t shape[] = {4};
  id = 0;
  RETURN_IF_ERROR(TRITONBACKEND_ResponseOutput(response, &output, "MEMORY_TYPES",
                                               TRITONSERVER_TYPE_INT32, shape, 1));
  RETURN_IF_ERROR(
      TRITONBACKEND_OutputBuffer(output, &target, 4 * sizeof(int32_t), &output_type, &id));
  const int32_t memory_types[] = {input_type, CanAllocate(manager, TRITONSERVER_MEMORY_CPU_PINNED),
                                  CanAllocate(manager, TRITONSERVER_MEMORY_GPU), output_type};
  if (output_type == TRITONSERVER_MEMORY_GPU) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED,
                                 "memory_types: the output is in GPU memory");
  }
  memcpy(target, memory_types, sizeof(memory_types));
  return NULL;
}

TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONBACKEND_Request** requests,
    const uint32_t request_count) {
  for (uint32_t i = 0; i < request_count; ++i) {
    struct TRITONBACKEND_Response* response = NULL;
    struct TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, requests[i]);
    if (error == NULL) error = WriteMemoryTypes(instance, requests[i], response);
    if (response != NULL)
      TRITONSERVER_ErrorDelete(
          TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
    TRITONSERVER_ErrorDelete(error);
    TRITONSERVER_ErrorDelete(
        TRITONBACKEND_RequestRelease(requests[i], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
