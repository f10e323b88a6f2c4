// Outputs that lie in memory of the backend's own and are sent to the client from there, without a
// copy. Triton does not have these functions: they are looked up in the host at run time, and who
// does not find them copies.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#include "triton/core/tritonbackend.h"

extern "C" {

// [any thread] Nobody reads the memory any more that was lent with this `lender_userp`.
typedef void (*NEREID_GiveBackFn_t)(void* lender_userp);

// [backend thread] In place of TRITONBACKEND_OutputBuffer: the output is the `byte_size` bytes of
// host memory at `base`, which nobody changes until `give_back` is called, once: after the response
// was sent, read or dropped. The model's last instance ends after that. Sets `is_taken` to false,
// and takes nothing, where the client has a place of its own for the output or does not know of
// loans; then the output still has no buffer. What was taken has one, as OutputBuffer says.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* NEREID_OutputLend(
    TRITONBACKEND_Output* output, const void* base, const uint64_t byte_size,
    NEREID_GiveBackFn_t give_back, void* lender_userp, bool* is_taken);

// [backend thread, concurrently] Returns what the allocator's release function will get as
// `buffer_userp`, and owes a call of `give_back` from then on; null: the output is not taken.
// `allocator_userp` is the request's.
typedef void* (*NEREID_AdoptFn_t)(const char* tensor_name, const void* base, size_t byte_size,
                                  NEREID_GiveBackFn_t give_back, void* lender_userp,
                                  void* allocator_userp);

// Responses of requests with this allocator may have lent outputs. Before its first request.
TRITONBACKEND_DECLSPEC struct TRITONSERVER_Error* NEREID_ResponseAllocatorSetAdoptFunction(
    struct TRITONSERVER_ResponseAllocator* allocator, NEREID_AdoptFn_t adopt_fn);

}  // extern "C"

namespace nereid {
inline namespace sdk {

// The host's functions, or null. [any thread]
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

}  // namespace sdk
}  // namespace nereid
