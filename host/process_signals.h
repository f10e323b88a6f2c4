// Signals of the process: graceful shutdown and the report of a crash. [main thread]
#pragma once

#include <chrono>
#include <string>

namespace nereid {

// Waits for SIGINT or SIGTERM. Uses handlers instead of blocking the signals: processes that
// backends start would inherit a blocked mask and could not be terminated.
class ShutdownSignal {
 public:
  // Installs the handlers. Until BeginServing, the first signal ends the process at once with
  // status 1, because there is nothing to drain.
  static void Install();
  // From now on Wait returns at the first signal, and a second one ends the process at once.
  static void BeginServing();
  // True if a signal arrived before `timeout` expired.
  static bool Wait(std::chrono::milliseconds timeout);
};

// Logs the signal and the stack trace of a crash. Then the signal takes its default action, so that
// a core is dumped and the parent process sees the signal. Disabled in sanitizer builds, which
// print their own report.
class CrashHandler {
 public:
  // The report is written to stderr, and to `log_file` unless that is empty.
  static void Install(const std::string& log_file);
};

}  // namespace nereid
