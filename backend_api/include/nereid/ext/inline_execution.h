// An entry point that Triton does not know; a backend that exports it still runs there.
#pragma once

#include "triton/core/tritonbackend.h"

extern "C" {

// TRITONBACKEND_ModelInstanceExecute for backends that only pass a request on: called on the thread
// that brings the request (a client's, a frontend's, another model's), which saves the change of
// threads. It must not wait for anything, and is called by several threads at once, also for one
// instance. Ownership and errors as there. The host calls it instead, with one request at a time,
// for models without batching where no rate limiter is set; warm-up always takes the other one.
TRITONBACKEND_ISPEC TRITONSERVER_Error* NEREID_ModelInstanceExecuteInline(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
    const uint32_t request_count);

}  // extern "C"
