// Memory that a model offers for the large inputs of a request, so that whoever brings the request
// receives them where the model reads them, without a copy: the other direction of lent_output.h.
// Triton does not have these functions; a backend that exports the entry point still runs there.
// Whoever does not find the host's functions, or is offered nothing, uses memory of its own. C++
// has them in input_memory.h.
#pragma once

#include <cstdint>

#include "nereid/ext/lent_output.h"
#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

extern "C" {

// `byte_size` bytes of host memory for inputs of one request, which may be of this instance or come
// to nothing. The memory is the request's until `give_back` is called, once, with `lender_userp`,
// also when the instance has ended by then; whoever serves gives it back before the server ends.
// Sets `base` to null where it offers none; a base without a `give_back` is no offer either and is
// passed over. Inputs that lie there are recognised by their address; the backend may write to them
// from the execution on. Must not wait. The host asks it for models of one instance without
// sequences and texts. [any thread]
TRITONBACKEND_ISPEC TRITONSERVER_Error* NEREID_ModelInstanceOfferInput(
    TRITONBACKEND_ModelInstance* instance, const uint64_t byte_size, void** base,
    NEREID_GiveBackFn_t* give_back, void** lender_userp);

// What a model offered. The owner deletes it when nobody reads the inputs any more.
struct NEREID_InputMemory;

// [any thread] Sets `memory` to null where the model offers none.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* NEREID_ServerOfferInput(
    struct TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    const uint64_t byte_size, struct NEREID_InputMemory** memory, void** base);

// Whether it is of the model that the request is for: since it was offered the model may have been
// loaded anew, and what is offered to one model is no place for another's inputs.
TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* NEREID_InputMemoryIsFor(
    struct NEREID_InputMemory* memory, struct TRITONSERVER_InferenceRequest* request, bool* is_for);

TRITONSERVER_DECLSPEC struct TRITONSERVER_Error* NEREID_InputMemoryDelete(
    struct NEREID_InputMemory* memory);

}  // extern "C"
