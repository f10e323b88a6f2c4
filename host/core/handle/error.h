// TRITONSERVER_Error and its two conversions: ToError where a Status leaves through the C edge,
// TakeError where an error came back from a backend or a callback. [any thread]
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "host/core/handle/handle_cast.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid {

// What a TRITONSERVER_Error* points to. Owned by whoever received the pointer.
struct ErrorObject {
  StatusCode code;
  std::string message;
};

// nullptr when Ok; else a new error that the receiver deletes.
TRITONSERVER_Error* ToError(Status status);
// Ok for nullptr; deletes `error`.
Status TakeError(TRITONSERVER_Error* error);
// As TakeError, and leaves `error` to its owner.
Status CopyError(const TRITONSERVER_Error* error);
// "Internal", "Invalid argument", "Not found", ...: as Triton prints them before a message.
const char* StatusCodeName(StatusCode code);

// Runs the body of a C function: its Status becomes the returned error, an exception (bad_alloc,
// say) an INTERNAL error.
template <typename Body>
TRITONSERVER_Error* AtCEdge(Body&& body) noexcept {
  try {
    return ToError(std::forward<Body>(body)());
  } catch (const std::exception& e) {
    return ToError(InternalError("unexpected exception: ", e.what()));
  } catch (...) {
    return ToError(InternalError("unexpected exception of unknown type"));
  }
}

}  // namespace nereid

NEREID_HANDLE(TRITONSERVER_Error, nereid::ErrorObject);

// In a C function returning TRITONSERVER_Error*: refuses a null pointer by its parameter's name.
#define NEREID_RETURN_IF_NULL(pointer)                                                         \
  do {                                                                                         \
    if ((pointer) == nullptr)                                                                  \
      return ::nereid::ToError(                                                                \
          ::nereid::InvalidArgError(__func__, ": parameter '" #pointer "' must not be null")); \
  } while (false)
