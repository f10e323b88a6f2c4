// Signals of the process: graceful shutdown and the report of a crash. [main thread]
#pragma once

#include <chrono>
#include <string>

namespace nereid {

// Waits for SIGINT or SIGTERM. Uses handlers instead of blocking the signals: processes that
// backends start would inherit a blocked mask and could not be terminated.
class ShutdownSignal {
 public:
  // Installs the handlers, once. Until BeginServing, the first signal ends the process at once with
  // status 1, because there is nothing to drain.
  static void Install();
  // From now on Wait returns at the first signal, and a second one ends the process at once.
  static void BeginServing();
  // True if a signal arrived before `timeout` expired.
  static bool Wait(std::chrono::milliseconds timeout);
};

// Sets a function to call where the process ends without static destructors: by ExitNow and by a
// signal that ends it at once. It may run in a signal handler, so it makes only async-signal-safe
// calls, and it may run twice. Null: none.
void SetExitAction(void (*action)());
// Ends the process without static destructors, after the exit action.
[[noreturn]] void ExitNow(int status);

// Logs the signal and the stack trace of a crash. Then the signal takes its default action, so that
// a core is dumped and the parent process sees the signal. Disabled in sanitizer builds, which
// print their own report.
class CrashHandler {
 public:
  // The report is written to stderr, and to `log_file` unless that is empty.
  static void Install(const std::string& log_file);
};

}  // namespace nereid
