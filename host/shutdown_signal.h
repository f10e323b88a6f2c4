// SIGINT and SIGTERM. Handlers, not a blocked mask: processes that backends start inherit a mask,
// and could then not be ended. [main thread]
#pragma once

#include <chrono>

namespace nereid {

class ShutdownSignal {
 public:
  // From now on the first signal ends the process at once, with status 1: there is nothing to
  // drain.
  static void Install();
  // From now on the first signal is what Wait waits for, and a second one ends the process at once.
  static void BeginServing();
  // True when a signal came before `timeout` was over.
  static bool Wait(std::chrono::milliseconds timeout);
};

}  // namespace nereid
