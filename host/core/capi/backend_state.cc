// TRITONBACKEND_State: implicit state of sequence models. No model can have states yet (sequence
// batching is refused at load), so each function says so. [instance thread]
#include "capi/handles.h"

#define NEREID_NO_STATE(function, ...)                                      \
  TRITONSERVER_Error* function(__VA_ARGS__) {                               \
    return nereid::ToError(nereid::UnsupportedError(                        \
        #function ": implicit state is not supported by this server yet")); \
  }

extern "C" {

NEREID_NO_STATE(TRITONBACKEND_StateNew, TRITONBACKEND_State**, TRITONBACKEND_Request*, const char*,
                const TRITONSERVER_DataType, const int64_t*, const uint32_t)
NEREID_NO_STATE(TRITONBACKEND_StateUpdate, TRITONBACKEND_State*)
NEREID_NO_STATE(TRITONBACKEND_StateBuffer, TRITONBACKEND_State*, void**, const uint64_t,
                TRITONSERVER_MemoryType*, int64_t*)
NEREID_NO_STATE(TRITONBACKEND_StateBufferAttributes, TRITONBACKEND_State*,
                TRITONSERVER_BufferAttributes**)

}  // extern "C"
