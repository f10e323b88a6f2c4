// Base64 (RFC 4648), as files come in a model load. Pure. [any thread]
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nereid::http {

// None when `text` is not base64; padding may be missing.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace nereid::http
