// Base64 (RFC 4648), as used for the files of a model load. Pure. [any thread]
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nereid::http {

// Returns none if `text` is not base64. Padding may be missing.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace nereid::http
