// The log: one line a message, in Triton's formats. Process-wide, because TRITONSERVER_LogMessage
// knows no server; the switch tests are relaxed atomic loads, so a message that is off costs a
// branch. [any thread]
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid::log {

// Values equal TRITONSERVER_LogLevel.
enum class Level : uint32_t { kInfo = 0, kWarn = 1, kError = 2, kVerbose = 3 };
// Values equal TRITONSERVER_LogFormat.
enum class Format : uint32_t { kDefault = 0, kIso8601 = 1 };

bool Enabled(Level level);
// Verbose messages have a depth; they are written when the set depth reaches theirs.
bool VerboseEnabled(int depth);

void SetEnabled(Level level, bool enabled);  // kInfo, kWarn, kError
void SetVerboseDepth(int depth);             // 0: off
void SetFormat(Format format);
// Appends to `path` from now on; empty: back to stderr. A file that cannot be opened leaves the log
// where it is.
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

// Also hands every written message to `callback` (null: none any more). It runs on the logging
// thread and must not log.
using Callback =
    std::function<void(Level, std::string_view file, int line, std::string_view message)>;
void SetCallback(Callback callback);

// Writes the message, JSON-escaped and quoted, when `level` is on. `file` may hold a path; its last
// part is printed.
void Write(Level level, std::string_view file, int line, std::string_view message);
// As Write, with the message as it stands: for tables of several lines.
void WriteRaw(Level level, std::string_view file, int line, std::string_view message);

}  // namespace nereid::log

#define NEREID_LOG_AT(level, ...)                                                     \
  do {                                                                                \
    if (::nereid::log::Enabled(level))                                                \
      ::nereid::log::Write(level, __FILE__, __LINE__, ::nereid::StrCat(__VA_ARGS__)); \
  } while (false)
#define NEREID_LOG_INFO(...) NEREID_LOG_AT(::nereid::log::Level::kInfo, __VA_ARGS__)
#define NEREID_LOG_WARN(...) NEREID_LOG_AT(::nereid::log::Level::kWarn, __VA_ARGS__)
#define NEREID_LOG_ERROR(...) NEREID_LOG_AT(::nereid::log::Level::kError, __VA_ARGS__)
#define NEREID_LOG_VERBOSE(depth, ...)                                         \
  do {                                                                         \
    if (::nereid::log::VerboseEnabled(depth))                                  \
      ::nereid::log::Write(::nereid::log::Level::kVerbose, __FILE__, __LINE__, \
                           ::nereid::StrCat(__VA_ARGS__));                     \
  } while (false)
