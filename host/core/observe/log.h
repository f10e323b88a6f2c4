// The log: one line per message, in Triton's formats. It is process-wide, because
// TRITONSERVER_LogMessage takes no server. Whether a level is enabled is a relaxed atomic load, so
// a disabled message costs one branch. [any thread]
#pragma once

#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::core::log {

// Values equal TRITONSERVER_LogLevel.
enum class Level : uint32_t { kInfo = 0, kWarn = 1, kError = 2, kVerbose = 3 };
// Values equal TRITONSERVER_LogFormat.
enum class Format : uint32_t { kDefault = 0, kIso8601 = 1 };

// A JSON object per line. TRITONSERVER_LogFormat has no value for this format. The environment
// variable NEREID_LOG_FORMAT=json selects it until SetFormat is called.
inline constexpr Format kJsonFormat{2};

bool Enabled(Level level);
// Verbose messages have a depth. They are written if the configured depth is at least theirs.
bool VerboseEnabled(int depth);

void SetEnabled(Level level, bool enabled);  // kInfo, kWarn, kError
void SetVerboseDepth(int depth);             // 0: off
void SetFormat(Format format);
// Redirects the log to the end of the file `path`, or to stderr if it is empty. INVALID_ARG if the
// file cannot be opened; the log is then not redirected.
Status SetFile(const std::string& path);

struct Settings {
  bool info;
  bool warn;
  bool error;
  int verbose_depth;
  Format format;
  std::string file;
};
Settings GetSettings();

// Also passes each written message to `callback`; null removes the callback. It runs on the thread
// that logs and must not log itself.
using Callback =
    std::function<void(Level, std::string_view file, int line, std::string_view message)>;
void SetCallback(Callback callback);

// Writes the message, JSON-escaped and quoted, if `level` is enabled. `file` may be a path; only
// its last component is printed.
void Write(Level level, std::string_view file, int line, std::string_view message);
// Like Write, but without escaping and quoting the message: for tables of several lines.
void WriteRaw(Level level, std::string_view file, int line, std::string_view message);

// Joins the parts of a message and writes it. Without memory for the line, the line is lost and
// the caller goes on: destructors and callbacks that may not throw log too.
template <typename... Parts>
void WriteParts(Level level, std::string_view file, int line, const Parts&... parts) noexcept {
  try {
    Write(level, file, line, StrCat(parts...));
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace nereid::core::log

#define NEREID_LOG_AT(level, ...)                                              \
  do {                                                                         \
    if (::nereid::core::log::Enabled(level))                                   \
      ::nereid::core::log::WriteParts(level, __FILE__, __LINE__, __VA_ARGS__); \
  } while (false)
#define NEREID_LOG_INFO(...) NEREID_LOG_AT(::nereid::core::log::Level::kInfo, __VA_ARGS__)
#define NEREID_LOG_WARN(...) NEREID_LOG_AT(::nereid::core::log::Level::kWarn, __VA_ARGS__)
#define NEREID_LOG_ERROR(...) NEREID_LOG_AT(::nereid::core::log::Level::kError, __VA_ARGS__)
#define NEREID_LOG_VERBOSE(depth, ...)                                                          \
  do {                                                                                          \
    if (::nereid::core::log::VerboseEnabled(depth))                                             \
      ::nereid::core::log::WriteParts(::nereid::core::log::Level::kVerbose, __FILE__, __LINE__, \
                                      __VA_ARGS__);                                             \
  } while (false)
