// The log settings that clients may read and change at run time. The C API can set them but not
// return them, so the frontends share this copy; frontends.cc initialises it from the command line.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "nereid/status.h"

namespace nereid {

struct LogValues {
  std::string file;  // empty: standard error
  bool info = true;
  bool warning = true;
  bool error = true;
  uint32_t verbose_level = 0;
  std::string format = "default";  // or "ISO8601"; "json" can be chosen only at start
};

// Settings that a client changes; empty ones stay unchanged.
struct LogChange {
  std::optional<bool> info;
  std::optional<bool> warning;
  std::optional<bool> error;
  std::optional<uint64_t> verbose_level;
  std::optional<std::string> format;
};

// [any thread]
class LogSettings {
 public:
  // `values` must already be in effect in the core.
  explicit LogSettings(LogValues values) : values_(std::move(values)) {}

  LogValues values() const;
  // Applies all of `change`. INVALID_ARG if a value is invalid; then nothing is changed.
  Status Apply(const LogChange& change);

 private:
  mutable std::mutex mutex_;  // guards values_, and keeps it equal to the core's settings
  LogValues values_;
};

}  // namespace nereid
