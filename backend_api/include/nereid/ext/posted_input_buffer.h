/// \file
/// Posted input buffers: memory that a model posts ahead for the large inputs of a request. A
/// frontend receives the client's bytes into it, and the model reads them there without a copy. It
/// is the counterpart of leased_output.h for inputs.
///
/// NEREID_ModelInstanceOfferInput is an optional entry point of a backend; the other functions are
/// exported by the host. Triton does not know them; a backend that exports the entry point still
/// runs in Triton. A frontend that does not find the host's functions, or gets no buffer, uses
/// memory of its own. The C++ wrapper is nereid::PostedInputBuffer (nereid/infer_request.h).
#pragma once

#include <cstdint>

#include "nereid/ext/leased_output.h"
#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

extern "C" {

/// Posts a buffer for inputs of one request. The request may later go to this instance or never
/// arrive. The backend recognises inputs in the buffer by their address, and may write to them from
/// the execution on.
///   byte_size      bytes that the caller needs
///   base           out; host memory of that size. Null if the instance posts no buffer. A base
///       without a `release_fn` counts as none.
///   release_fn, release_userp  out; the host calls the function once when the memory is no longer
///       used, possibly after the instance has ended but before the server ends
///   Errors: any error counts as no buffer.
/// The host calls it for models with one instance, without sequence batching and without inputs of
/// type BYTES. [any thread] It must not wait.
TRITONBACKEND_ISPEC TRITONSERVER_Error* NEREID_ModelInstanceOfferInput(
    TRITONBACKEND_ModelInstance* instance, const uint64_t byte_size, void** base,
    NEREID_ReleaseFn_t* release_fn, void** release_userp);

/// A buffer that a model has posted. The owner deletes it when the inputs are no longer read.
struct NEREID_PostedInputBuffer;

/// Asks a model for a posted buffer.
///   model_version  -1: the version that the model's policy chooses
///   memory         out; the caller's (InputMemoryDelete). Null if the model posts none.
///   base           out; the buffer's first byte, set only if `memory` is not null
///   Errors: as for finding a model: NOT_FOUND, no such model; UNAVAILABLE, not ready.
/// [any thread]
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* NEREID_ServerOfferInput(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    const uint64_t byte_size, struct NEREID_PostedInputBuffer** memory, void** base);

/// Checks whether the request goes to the model that posted the buffer. The model may have been
/// reloaded since, and a buffer of one model must not be used for inputs of another.
///   is_for  out
/// [any thread]
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* NEREID_InputMemoryIsFor(
    struct NEREID_PostedInputBuffer* memory, struct TRITONSERVER_InferenceRequest* request,
    bool* is_for);

/// Gives the buffer back to its model, also after the model was unloaded. [any thread]
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* NEREID_InputMemoryDelete(
    struct NEREID_PostedInputBuffer* memory);

}  // extern "C"
