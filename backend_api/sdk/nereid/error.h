/// \file
/// Converts errors between Status and TRITONSERVER_Error*. Used wherever C++ calls the C API or the
/// C API calls C++. [any thread]
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <type_traits>

#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid {

/// Takes ownership of `error`; nullptr means success.
inline Status ToStatus(TRITONSERVER_Error* error) {
  if (error == nullptr) return Status::Ok();
  Status status(static_cast<StatusCode>(TRITONSERVER_ErrorCode(error)),
                TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return status;
}

/// The caller, usually the host, owns the returned error. Ok becomes nullptr.
[[nodiscard]] inline TRITONSERVER_Error* ToError(const Status& status) {
  if (status.ok()) return nullptr;
  return TRITONSERVER_ErrorNew(static_cast<TRITONSERVER_Error_Code>(status.code()),
                               status.message().c_str());
}

/// Runs `body`, a callable that returns Status, and converts an exception to a Status: UNAVAILABLE
/// for std::bad_alloc, otherwise INTERNAL. `where` begins the message of the error.
template <typename Body>
Status CatchAll(const char* where, const Body& body) noexcept {
  static_assert(std::is_same_v<decltype(body()), Status>);
  try {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      return UnavailableError(where, ": out of memory");
    } catch (const std::exception& error) {
      return InternalError(where, ": ", error.what());
    } catch (...) {
      return InternalError(where, ": an exception that is no std::exception");
    }
  } catch (...) {  // memory ran out while the message was made
    return Status(StatusCode::kUnavailable, std::string());
  }
}

/// Runs the body of a C function that is implemented in C++. Converts exceptions and failures to an
/// error that the caller owns.
template <typename Body>
[[nodiscard]] TRITONSERVER_Error* GuardCBoundary(const char* where, const Body& body) noexcept {
  return ToError(CatchAll(where, body));
}

}  // namespace nereid
