// Calls into a backend: an error it returns is taken over, a C++ exception it lets out becomes an
// INTERNAL error instead of the end of the process, and one that calls exit() is named. [any
// thread]
#pragma once

#include <exception>
#include <string_view>

#include "host/core/backend/current_call.h"
#include "host/core/handle/error.h"
#include "nereid/status.h"

namespace nereid {

// `owner` and `entry` name the call in messages.
template <typename Call>
Status GuardedCall(std::string_view owner, const char* entry, Call&& call) {
  const CurrentCall current(owner, entry);
  try {
    return TakeError(call());
  } catch (const std::exception& e) {
    return InternalError(owner, ": ", entry, " threw: ", e.what());
  } catch (...) {
    return InternalError(owner, ": ", entry, " threw an unknown exception");
  }
}

}  // namespace nereid
