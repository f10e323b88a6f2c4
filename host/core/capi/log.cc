// The log and its options. The options take effect at once for the whole process, so the options
// object may be null: this is how frontends change the log of a running server. [any thread]
#include "host/core/observe/log.h"

#include "base/clock.h"
#include "host/core/capi/handles.h"

namespace core_log = nereid::core::log;

extern "C" {

bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level) {
  return core_log::Enabled(static_cast<core_log::Level>(level));
}

TRITONSERVER_Error* TRITONSERVER_LogMessage(TRITONSERVER_LogLevel level, const char* filename,
                                            const int line, const char* msg) {
  NEREID_RETURN_IF_NULL(msg);
  if (static_cast<uint32_t>(level) > TRITONSERVER_LOG_VERBOSE) {
    return nereid::core::ToError(nereid::InvalidArgError("unknown logging level '", level, "'"));
  }
  return nereid::core::AtCBoundary([&] {
    core_log::Write(static_cast<core_log::Level>(level), filename == nullptr ? "" : filename, line,
                    msg);
    return nereid::Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogFile(TRITONSERVER_ServerOptions*,
                                                         const char* file) {
  return nereid::core::AtCBoundary([&] { return core_log::SetFile(file == nullptr ? "" : file); });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogInfo(TRITONSERVER_ServerOptions*,
                                                         bool enabled) {
  core_log::SetEnabled(core_log::Level::kInfo, enabled);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogWarn(TRITONSERVER_ServerOptions*,
                                                         bool enabled) {
  core_log::SetEnabled(core_log::Level::kWarn, enabled);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogError(TRITONSERVER_ServerOptions*,
                                                          bool enabled) {
  core_log::SetEnabled(core_log::Level::kError, enabled);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogFormat(TRITONSERVER_ServerOptions*,
                                                           const TRITONSERVER_LogFormat format) {
  if (format != TRITONSERVER_LOG_DEFAULT && format != TRITONSERVER_LOG_ISO8601) {
    return nereid::core::ToError(nereid::InvalidArgError("unknown log format '", format, "'"));
  }
  core_log::SetFormat(static_cast<core_log::Format>(format));
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogVerbose(TRITONSERVER_ServerOptions*,
                                                            int level) {
  core_log::SetVerboseDepth(level);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetLogCallback(TRITONSERVER_ServerOptions*,
                                                             TRITONSERVER_LogCallbackFn_t callback,
                                                             void* userp) {
  return nereid::core::AtCBoundary([&] {
    if (callback == nullptr) {
      core_log::SetCallback(nullptr);
    } else {
      core_log::SetCallback([callback, userp](core_log::Level level, std::string_view file,
                                              int line, std::string_view message) {
        callback(static_cast<TRITONSERVER_LogLevel>(level), std::string(file).c_str(), line,
                 nereid::WallNowUs(), std::string(message).c_str(), userp);
      });
    }
    return nereid::Status::Ok();
  });
}

}  // extern "C"
