// Move-only owners of the C handles that a backend author holds. Each is a unique_ptr whose deleter
// is the handle's Delete function; what owns more than memory (Message, Parameter, InferRequest,
// Metric ...) is a class with a header of its own. [any thread; one object, one thread]
#pragma once

#include <memory>

#include "nereid/error.h"
#include "triton/core/tritonbackend.h"
#include "triton/core/tritonserver.h"

namespace nereid {
inline namespace sdk {

template <typename T, TRITONSERVER_Error* (*kDelete)(T*)>
struct HandleDeleter {
  // A handle that cannot be deleted has no better place to go: the error ends here.
  void operator()(T* handle) const { (void)ToStatus(kDelete(handle)); }
};
template <typename T, TRITONSERVER_Error* (*kDelete)(T*)>
using Handle = std::unique_ptr<T, HandleDeleter<T, kDelete>>;

struct ErrorDeleter {
  void operator()(TRITONSERVER_Error* error) const { TRITONSERVER_ErrorDelete(error); }
};
using ErrorHandle = std::unique_ptr<TRITONSERVER_Error, ErrorDeleter>;

using BufferAttributesHandle =
    Handle<TRITONSERVER_BufferAttributes, &TRITONSERVER_BufferAttributesDelete>;
using ResponseFactoryHandle =
    Handle<TRITONBACKEND_ResponseFactory, &TRITONBACKEND_ResponseFactoryDelete>;
// A response that was not sent; sending takes it out by release().
using ResponseHandle = Handle<TRITONBACKEND_Response, &TRITONBACKEND_ResponseDelete>;
using ResponseStatisticsHandle = Handle<TRITONBACKEND_ModelInstanceResponseStatistics,
                                        &TRITONBACKEND_ModelInstanceResponseStatisticsDelete>;

// ---- making them

inline Result<ResponseHandle> NewResponseHandle(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Response* response = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseNew(&response, request)));
  return ResponseHandle(response);
}
inline Result<ResponseHandle> NewResponseHandle(TRITONBACKEND_ResponseFactory* factory) {
  TRITONBACKEND_Response* response = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseNewFromFactory(&response, factory)));
  return ResponseHandle(response);
}
// The factory outlives the request: responses may follow its release.
inline Result<ResponseFactoryHandle> NewResponseFactoryHandle(TRITONBACKEND_Request* request) {
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ResponseFactoryNew(&factory, request)));
  return ResponseFactoryHandle(factory);
}
inline Result<BufferAttributesHandle> NewBufferAttributesHandle() {
  TRITONSERVER_BufferAttributes* attributes = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_BufferAttributesNew(&attributes)));
  return BufferAttributesHandle(attributes);
}

}  // namespace sdk
}  // namespace nereid
