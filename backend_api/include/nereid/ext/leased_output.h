/// \file
/// Leased outputs: output memory that the backend owns and that the frontend sends to the client
/// without a copy. The backend leases the memory to the response and gets it back by a release
/// function after the response was sent.
///
/// The host exports the functions; Triton does not have them. Callers look them up at run time with
/// the Find functions below. A backend or frontend that does not find them copies its outputs.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#include "triton/core/tritonbackend.h"

extern "C" {

/// Ends a lease: the memory that came with this `release_userp` is no longer read. Called once for
/// each lease or posted buffer. [any thread]
typedef void (*NEREID_ReleaseFn_t)(void* release_userp);

/// Leases memory to an output, in place of TRITONBACKEND_OutputBuffer.
///   base, byte_size  host memory with the output's bytes. It must stay unchanged until the host
///       calls `release_fn`, once: after the response was sent, read or dropped. The model's last
///       instance ends only after that.
///   release_userp    optional; passed to `release_fn`
///   is_taken         out; false if the lease was declined, because the client has its own memory
///       for the output or its frontend does not accept leases. The output then has no buffer yet
///       and `release_fn` is not called: call TRITONBACKEND_OutputBuffer and copy.
///   Errors: ALREADY_EXISTS, the output has a buffer; INVALID_ARG, the final response was sent.
/// [backend thread]
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* NEREID_OutputLend(
    TRITONBACKEND_Output* output, const void* base, const uint64_t byte_size,
    NEREID_ReleaseFn_t release_fn, void* release_userp, bool* is_taken);

/// Accepts or declines the lease of one output, on behalf of a response allocator.
///   tensor_name      readable during the call
///   base, byte_size  the leased memory, read-only
///   release_fn, release_userp  to be called once when the memory is no longer read, if the
///       lease is accepted
///   allocator_userp  that of TRITONSERVER_InferenceRequestSetResponseCallback
///   Returns the `buffer_userp` that the allocator's release function gets for this output; null
///       declines the lease.
/// [backend thread, concurrently]
typedef void* (*NEREID_AcceptLeaseFn_t)(const char* tensor_name, const void* base, size_t byte_size,
                                        NEREID_ReleaseFn_t release_fn, void* release_userp,
                                        void* allocator_userp);

/// Lets responses of requests with this allocator have leased outputs. Call it before the first
/// request uses the allocator.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* NEREID_ResponseAllocatorSetAdoptFunction(
    struct TRITONSERVER_ResponseAllocator* allocator, NEREID_AcceptLeaseFn_t accept_lease_fn);

}  // extern "C"

namespace nereid {

/// Return the host's functions, or null if the host does not have them. [any thread]
inline decltype(&NEREID_OutputLend) FindOutputLend() {
  static const auto found =
      reinterpret_cast<decltype(&NEREID_OutputLend)>(dlsym(RTLD_DEFAULT, "NEREID_OutputLend"));
  return found;
}
inline decltype(&NEREID_ResponseAllocatorSetAdoptFunction) FindSetAdoptFunction() {
  static const auto found = reinterpret_cast<decltype(&NEREID_ResponseAllocatorSetAdoptFunction)>(
      dlsym(RTLD_DEFAULT, "NEREID_ResponseAllocatorSetAdoptFunction"));
  return found;
}

}  // namespace nereid
