// The log settings that clients may read and change while the server runs. The C API can set them
// but not tell them, so the frontends share this copy; main.cc makes it from the command line.
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
  std::string format = "default";  // or "ISO8601"; "json" from the start alone
};

// What a client wants changed; the rest stays.
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
  // `values` are in force already.
  explicit LogSettings(LogValues values) : values_(std::move(values)) {}

  LogValues values() const;
  // All of `change` or, with INVALID_ARG, nothing.
  Status Apply(const LogChange& change);

 private:
  mutable std::mutex mutex_;  // guards values_, and keeps it equal to what the core was told
  LogValues values_;
};

}  // namespace nereid
