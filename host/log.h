// Log functions of the executable and the frontends. [any thread]
#pragma once

#include "nereid/error.h"
#include "nereid/status.h"

namespace nereid {

template <typename... Args>
void LogInfo(const Args&... args) {
  (void)ToStatus(
      TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, "main.cc", 0, StrCat(args...).c_str()));
}
// Almost free if verbose logging is disabled.
template <typename... Args>
void LogVerbose(const Args&... args) {
  if (!TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE)) return;
  (void)ToStatus(
      TRITONSERVER_LogMessage(TRITONSERVER_LOG_VERBOSE, "main.cc", 0, StrCat(args...).c_str()));
}
template <typename... Args>
void LogWarning(const Args&... args) {
  (void)ToStatus(
      TRITONSERVER_LogMessage(TRITONSERVER_LOG_WARN, "main.cc", 0, StrCat(args...).c_str()));
}
template <typename... Args>
void LogError(const Args&... args) {
  (void)ToStatus(
      TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, "main.cc", 0, StrCat(args...).c_str()));
}

}  // namespace nereid
