// The client's callbacks that give output buffers: TRITONSERVER_ResponseAllocator. Made once by a
// frontend, used by many requests at a time. [any thread]
#pragma once

#include "host/core/handle/handle_cast.h"
#include "nereid/ext/lent_output.h"
#include "triton/core/tritonserver.h"

namespace nereid {

struct ResponseAllocator {
  TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn = nullptr;
  TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn = nullptr;
  TRITONSERVER_ResponseAllocatorStartFn_t start_fn = nullptr;                         // may be null
  TRITONSERVER_ResponseAllocatorBufferAttributesFn_t buffer_attributes_fn = nullptr;  // may be null
  TRITONSERVER_ResponseAllocatorQueryFn_t query_fn = nullptr;                         // may be null
  NEREID_AdoptFn_t adopt_fn = nullptr;  // null: takes no lent outputs
};

}  // namespace nereid

NEREID_HANDLE(TRITONSERVER_ResponseAllocator, nereid::ResponseAllocator);
