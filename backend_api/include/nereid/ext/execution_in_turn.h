// Two entry points that Triton does not know; a backend that exports them still runs there. For
// backends that wake something up for each execution, like a process of their own: with the next
// requests in hand they need not wake it for each.
#pragma once

#include "triton/core/tritonbackend.h"

extern "C" {

// How many requests the instance takes at once, asked whenever one waits for it: 1 for no more
// than TRITONBACKEND_ModelInstanceExecute gets. [instance's thread]
TRITONBACKEND_ISPEC uint32_t NEREID_ModelInstanceMostInTurn(TRITONBACKEND_ModelInstance* instance);

// As if TRITONBACKEND_ModelInstanceExecute were called with each of the requests alone, one after
// the other: each is an execution of its own, in its statistics, too. Ownership and errors as
// there. The host calls it where two or more requests wait for a model that has neither dynamic
// nor sequence batching, one instance, and no rate limiter. [instance's thread]
TRITONBACKEND_ISPEC TRITONSERVER_Error* NEREID_ModelInstanceExecuteInTurn(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
    const uint32_t request_count);

}  // extern "C"
