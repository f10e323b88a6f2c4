// Calls into a backend: an error it returns is taken over, a C++ exception it lets out becomes an
// INTERNAL error instead of the end of the process. [any thread]
#pragma once

#include <exception>
#include <string_view>

#include "base/error.h"
#include "nereid/status.h"

namespace nereid {

// `owner` and `entry` name the call in messages.
template <typename Call>
Status GuardedCall(std::string_view owner, const char* entry, Call&& call) {
  try {
    return TakeError(call());
  } catch (const std::exception& e) {
    return InternalError(owner, ": ", entry, " threw: ", e.what());
  } catch (...) {
    return InternalError(owner, ": ", entry, " threw an unknown exception");
  }
}

}  // namespace nereid
