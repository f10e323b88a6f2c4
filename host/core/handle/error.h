// TRITONSERVER_Error and its conversions: ToError turns a Status into an error that a C function
// returns; TakeError converts an error that a backend or a callback returned. [any thread]
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "host/core/handle/handle_cast.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::core {

// The object behind a TRITONSERVER_Error*. The receiver of the pointer owns it.
struct ErrorObject {
  StatusCode code;
  std::string message;
};

// A new error that the receiver deletes. `status` is not Ok.
TRITONSERVER_Error* NewError(const Status& status);
// nullptr if `status` is Ok; otherwise as NewError. Inline, because a request makes some 20 calls
// of C functions, which succeed.
inline TRITONSERVER_Error* ToError(const Status& status) {
  return status.ok() ? nullptr : NewError(status);
}
// Converts `error` to a Status and deletes it. Ok for nullptr.
Status TakeError(TRITONSERVER_Error* error);
// Like TakeError, but does not delete `error`.
Status CopyError(const TRITONSERVER_Error* error);
// "Internal", "Invalid argument", "Not found" and so on, as Triton prints them before a message.
const char* StatusCodeName(StatusCode code);

// Runs the body of a C function. Converts its Status to the returned error, and an exception (for
// example bad_alloc) to an INTERNAL error.
template <typename Body>
TRITONSERVER_Error* AtCBoundary(Body&& body) noexcept {
  try {
    return ToError(std::forward<Body>(body)());
  } catch (const std::exception& e) {
    return ToError(InternalError("unexpected exception: ", e.what()));
  } catch (...) {
    return ToError(InternalError("unexpected exception of unknown type"));
  }
}

}  // namespace nereid::core

NEREID_HANDLE(TRITONSERVER_Error, nereid::core::ErrorObject);

// For a C function that returns TRITONSERVER_Error*: returns an INVALID_ARG error with the name of
// the parameter if `pointer` is null.
#define NEREID_RETURN_IF_NULL(pointer)                                                         \
  do {                                                                                         \
    if ((pointer) == nullptr)                                                                  \
      return ::nereid::core::ToError(                                                          \
          ::nereid::InvalidArgError(__func__, ": parameter '" #pointer "' must not be null")); \
  } while (false)
