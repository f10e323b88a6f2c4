// TRITONSERVER_ResponseAllocator. [any thread]
#include "host/core/request/response_allocator.h"

#include "host/core/capi/handles.h"

using nereid::Status;
using nereid::core::FromHandle;
using nereid::core::ResponseAllocator;

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorNew(
    TRITONSERVER_ResponseAllocator** allocator, TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn,
    TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn,
    TRITONSERVER_ResponseAllocatorStartFn_t start_fn) {
  NEREID_RETURN_IF_NULL(allocator);
  NEREID_RETURN_IF_NULL(alloc_fn);
  NEREID_RETURN_IF_NULL(release_fn);
  return nereid::core::AtCBoundary([&] {
    *allocator = ToHandle(new ResponseAllocator{
        .alloc_fn = alloc_fn, .release_fn = release_fn, .start_fn = start_fn});
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
    TRITONSERVER_ResponseAllocator* allocator,
    TRITONSERVER_ResponseAllocatorBufferAttributesFn_t buffer_attributes_fn) {
  NEREID_RETURN_IF_NULL(allocator);
  FromHandle(allocator)->buffer_attributes_fn = buffer_attributes_fn;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorSetQueryFunction(
    TRITONSERVER_ResponseAllocator* allocator, TRITONSERVER_ResponseAllocatorQueryFn_t query_fn) {
  NEREID_RETURN_IF_NULL(allocator);
  FromHandle(allocator)->query_fn = query_fn;
  return nullptr;
}

TRITONSERVER_Error* NEREID_ResponseAllocatorSetAdoptFunction(
    TRITONSERVER_ResponseAllocator* allocator, NEREID_AcceptLeaseFn_t accept_lease_fn) {
  NEREID_RETURN_IF_NULL(allocator);
  FromHandle(allocator)->accept_lease_fn = accept_lease_fn;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorDelete(
    TRITONSERVER_ResponseAllocator* allocator) {
  delete FromHandle(allocator);
  return nullptr;
}

}  // extern "C"
