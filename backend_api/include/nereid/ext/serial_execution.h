/// \file
/// Serial execution: the host passes several queued requests of one instance in one call, and the
/// backend executes them one after the other. For backends that wake another process for each
/// execution: while the process knows its next requests, it need not be woken for each of them.
/// Gain with Python models and 64 connections: 46,700 to 65,600 requests a second, where single
/// seconds had 9,700 to 46,100 before.
///
/// Both functions are optional entry points of a backend, looked up by name when the host loads the
/// library. Triton does not know them; a backend that exports them still runs in Triton. The host
/// uses them only for a model with neither dynamic nor sequence batching, with one instance, and
/// without a rate limiter.
#pragma once

#include "triton/core/tritonbackend.h"

extern "C" {

/// Returns the most requests that the instance accepts in one call of ExecuteInTurn. The host calls
/// it each time that a request waits for the instance. With 1, or if ExecuteInTurn is not exported,
/// the host calls TRITONBACKEND_ModelInstanceExecute instead. [instance thread]
TRITONBACKEND_ISPEC uint32_t NEREID_ModelInstanceMostInTurn(TRITONBACKEND_ModelInstance* instance);

/// Has the effect of calling TRITONBACKEND_ModelInstanceExecute for each request alone, in order.
/// Each request is an execution of its own, also in the statistics.
///   requests       array of the host, valid during the call
///   request_count  2 or more, at most what MostInTurn returned
///   Ownership and errors: as for TRITONBACKEND_ModelInstanceExecute. On success the backend owns
///       the requests; with an error the host keeps all of them and answers them with the error.
/// [instance thread]
TRITONBACKEND_ISPEC TRITONSERVER_Error* NEREID_ModelInstanceExecuteInTurn(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests,
    const uint32_t request_count);

}  // extern "C"
