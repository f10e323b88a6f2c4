/* The headers are C: compiled as C99, pedantically; nothing runs. */
#include "triton/core/tritonbackend.h"
#include "triton/core/tritoncache.h"
#include "triton/core/tritonrepoagent.h"
#include "triton/core/tritonserver.h"

TRITONSERVER_Error_Code NereidHeadersInC(void) {
  return TRITONSERVER_ERROR_UNKNOWN;
}
