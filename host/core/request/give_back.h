// Memory that a backend lent goes back to it. An exception that it lets out there is logged: the
// callers are destructors and C callbacks. [any thread]
#pragma once

#include <exception>

#include "host/core/observe/log.h"
#include "nereid/ext/lent_output.h"

namespace nereid {

inline void GiveBack(NEREID_GiveBackFn_t give_back, void* lender_userp) noexcept {
  try {
    give_back(lender_userp);
  } catch (const std::exception& e) {
    NEREID_LOG_ERROR("a backend threw where memory was given back to it: ", e.what());
  } catch (...) {
    NEREID_LOG_ERROR("a backend threw an unknown exception where memory was given back to it");
  }
}

}  // namespace nereid
