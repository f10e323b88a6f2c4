// See model_version.h. The messages are Triton's to the letter: clients know them.
#include "host/frontend/model_version.h"

#include <charconv>

namespace nereid {

Result<int64_t> ParseModelVersion(std::string_view text) {
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

}  // namespace nereid
