// A backend that needs a function which no host provides. Loading it fails with an error that names
// the function.
#include "triton/core/tritonbackend.h"

extern struct TRITONSERVER_Error* TRITONBACKEND_NoSuchFunction(void);

TRITONBACKEND_ISPEC struct TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    struct TRITONBACKEND_ModelInstance* instance, struct TRITONBACKEND_Request** requests,
    const uint32_t request_count) {
  return TRITONBACKEND_NoSuchFunction();
}
