// A custom batching library on the raw C API. The function that the model parameter `fault` names
// returns an error.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "triton/core/tritonbackend.h"

static char g_fault[64];

static struct TRITONSERVER_Error* FailIn(const char* function) {
  char message[128];
  if (strcmp(function, g_fault) != 0) return NULL;
  snprintf(message, sizeof(message), "faulty: %s fails as told", function);
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, message);
}

// Reads the string after `"fault":{"string_value":"` in the model configuration.
static struct TRITONSERVER_Error* ReadFaultParameter(struct TRITONBACKEND_Model* model) {
  static const char kKey[] = "\"fault\":{\"string_value\":\"";
  struct TRITONSERVER_Message* config = NULL;
  const char* json = NULL;
  size_t size = 0;
  struct TRITONSERVER_Error* error = TRITONBACKEND_ModelConfig(model, 1, &config);
  if (error != NULL) return error;
  error = TRITONSERVER_MessageSerializeToJson(config, &json, &size);
  if (error == NULL) {
    char* text = calloc(1, size + 1);
    memcpy(text, json, size);
    const char* found = strstr(text, kKey);
    if (found != NULL) sscanf(found + strlen(kKey), "%63[^\"]", g_fault);
    free(text);
  }
  TRITONSERVER_MessageDelete(config);
  return error;
}

TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatcherInitialize(
    struct TRITONBACKEND_Batcher** batcher, struct TRITONBACKEND_Model* model) {
  struct TRITONSERVER_Error* error = ReadFaultParameter(model);
  *batcher = (struct TRITONBACKEND_Batcher*)g_fault;
  return error != NULL ? error : FailIn("ModelBatcherInitialize");
}

TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatcherFinalize(
    struct TRITONBACKEND_Batcher* batcher) {
  (void)batcher;
  return FailIn("ModelBatcherFinalize");
}

TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatchInitialize(
    const struct TRITONBACKEND_Batcher* batcher, void** userp) {
  (void)batcher;
  *userp = NULL;
  return FailIn("ModelBatchInitialize");
}

TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatchIncludeRequest(
    struct TRITONBACKEND_Request* request, void* userp, bool* should_include) {
  (void)request;
  (void)userp;
  *should_include = true;
  return FailIn("ModelBatchIncludeRequest");
}

TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelBatchFinalize(void* userp) {
  (void)userp;
  return FailIn("ModelBatchFinalize");
}
