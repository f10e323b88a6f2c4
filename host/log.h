// Log functions of the executable and the frontends. A line names the file and line of the call.
// [any thread]
#pragma once

#include <string>
#include <string_view>

#include "nereid/error.h"
#include "nereid/status.h"

namespace nereid {

// The first part of a message, and the place of the call whose argument was converted to it.
// Refers to the text.
struct LogText {
  // NOLINTBEGIN(google-explicit-constructor): converts the arguments of the functions below
  LogText(const char* first, const char* call_file = __builtin_FILE(),
          int call_line = __builtin_LINE())
      : text(first), file(call_file), line(call_line) {}
  LogText(const std::string& first, const char* call_file = __builtin_FILE(),
          int call_line = __builtin_LINE())
      : text(first), file(call_file), line(call_line) {}
  // NOLINTEND(google-explicit-constructor)

  std::string_view text;
  const char* file;
  int line;
};

template <typename... Args>
void LogMessage(TRITONSERVER_LogLevel level, const LogText& first, const Args&... rest) {
  if (!TRITONSERVER_LogIsEnabled(level)) return;
  (void)ToStatus(
      TRITONSERVER_LogMessage(level, first.file, first.line, StrCat(first.text, rest...).c_str()));
}
template <typename... Args>
void LogInfo(const LogText& first, const Args&... rest) {
  LogMessage(TRITONSERVER_LOG_INFO, first, rest...);
}
// Almost free if verbose logging is disabled.
template <typename... Args>
void LogVerbose(const LogText& first, const Args&... rest) {
  LogMessage(TRITONSERVER_LOG_VERBOSE, first, rest...);
}
template <typename... Args>
void LogWarning(const LogText& first, const Args&... rest) {
  LogMessage(TRITONSERVER_LOG_WARN, first, rest...);
}
template <typename... Args>
void LogError(const LogText& first, const Args&... rest) {
  LogMessage(TRITONSERVER_LOG_ERROR, first, rest...);
}

}  // namespace nereid
