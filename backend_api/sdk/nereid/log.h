/// \file
/// Writes to the host's log. [any thread]
#pragma once

#include <string>

#include "nereid/error.h"
#include "triton/core/tritonserver.h"

namespace nereid {

/// Errors are dropped: a failed log call cannot be reported elsewhere.
inline void Log(TRITONSERVER_LogLevel level, const std::string& message,
                const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!TRITONSERVER_LogIsEnabled(level)) return;
  (void)ToStatus(TRITONSERVER_LogMessage(level, file, line, message.c_str()));
}
inline void LogInfo(const std::string& message, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  Log(TRITONSERVER_LOG_INFO, message, file, line);
}
inline void LogWarning(const std::string& message, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  Log(TRITONSERVER_LOG_WARN, message, file, line);
}
inline void LogError(const std::string& message, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE()) {
  Log(TRITONSERVER_LOG_ERROR, message, file, line);
}
inline void LogVerbose(const std::string& message, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  Log(TRITONSERVER_LOG_VERBOSE, message, file, line);
}

}  // namespace nereid
