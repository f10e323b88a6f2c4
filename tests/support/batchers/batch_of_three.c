// A custom batching library that limits every batch to three requests, whatever the model allows.
#include <stdlib.h>

#include "triton/core/tritonbackend.h"

static int num_open = 0;  // started and unfinished batches; at most one

struct TRITONSERVER_Error* TRITONBACKEND_ModelBatcherInitialize(
    struct TRITONBACKEND_Batcher** batcher, struct TRITONBACKEND_Model* model) {
  *batcher = (struct TRITONBACKEND_Batcher*)&num_open;
  return NULL;
}

struct TRITONSERVER_Error* TRITONBACKEND_ModelBatcherFinalize(
    struct TRITONBACKEND_Batcher* batcher) {
  if (num_open != 0) abort();
  return NULL;
}

struct TRITONSERVER_Error* TRITONBACKEND_ModelBatchInitialize(
    const struct TRITONBACKEND_Batcher* batcher, void** userp) {
  if (batcher != (const struct TRITONBACKEND_Batcher*)&num_open || num_open++ != 0) abort();
  *userp = calloc(1, sizeof(int));
  return NULL;
}

struct TRITONSERVER_Error* TRITONBACKEND_ModelBatchIncludeRequest(
    struct TRITONBACKEND_Request* request, void* userp, bool* should_include) {
  *should_include = ++*(int*)userp <= 3;
  return NULL;
}

struct TRITONSERVER_Error* TRITONBACKEND_ModelBatchFinalize(void* userp) {
  if (--num_open != 0) abort();
  free(userp);
  return NULL;
}
