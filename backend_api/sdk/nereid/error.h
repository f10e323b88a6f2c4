// The C edge of errors: Status <-> TRITONSERVER_Error*. Used wherever C++ calls the C API or is
// called by it. [any thread]
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <type_traits>

#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid {

// Takes ownership of `error`; nullptr is success.
inline Status ToStatus(TRITONSERVER_Error* error) {
  if (error == nullptr) return Status::Ok();
  Status status(static_cast<StatusCode>(TRITONSERVER_ErrorCode(error)),
                TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return status;
}

// The caller, usually the host, owns what is returned; Ok becomes nullptr.
[[nodiscard]] inline TRITONSERVER_Error* ToError(const Status& status) {
  if (status.ok()) return nullptr;
  return TRITONSERVER_ErrorNew(static_cast<TRITONSERVER_Error_Code>(status.code()),
                               status.message().c_str());
}

// Runs `body`, a callable that returns Status, and turns what it throws into one: UNAVAILABLE when
// memory ran out, else INTERNAL. `where` names the place for the reader of the message.
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
  } catch (...) {  // not even the message could be made
    return Status(StatusCode::kUnavailable, std::string());
  }
}

// The body of a C function that C++ implements: no exception passes, a failure becomes an error
// that the caller owns.
template <typename Body>
[[nodiscard]] TRITONSERVER_Error* GuardCEdge(const char* where, const Body& body) noexcept {
  return ToError(CatchAll(where, body));
}

}  // namespace nereid
