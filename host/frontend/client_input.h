// Checks of values that every frontend receives from clients. [any thread]
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>

#include "nereid/status.h"

namespace nereid {

// Parses a model version: -1 for "", which means the version chosen by the model's policy;
// otherwise a non-negative decimal number. The messages are Triton's, word for word, because
// clients compare them.
inline Result<int64_t> ParseModelVersion(std::string_view text) {
  if (text.empty()) return int64_t{-1};
  int64_t version = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, version);
  if (error != std::errc() || stop != end) {
    return InvalidArgError("failed to get model version from specified version string '", text,
                           "' (details: stol), version should be an integral value > 0");
  }
  if (version < 0) {
    return InvalidArgError("invalid model version specified '", text,
                           "' , version should be an integral value > 0");
  }
  return version;
}

// Rejects zero bytes. The C API takes zero-terminated strings, so a zero byte would truncate a
// name, possibly to another valid name. `what` names the member or parameter in the error message.
inline Status RejectZeroByte(std::string_view what, std::string_view text) {
  if (text.find('\0') == std::string_view::npos) return Status::Ok();
  return InvalidArgError("'", what, "' holds a zero byte");
}

}  // namespace nereid
