// Bodies that are compressed on their way, gzip or deflate (RFC 9110, 8.4). Pure. [any thread]
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "host/frontend/http/transport/byte_buffer.h"
#include "nereid/status.h"

namespace nereid::http {

enum class Encoding { kIdentity, kGzip, kDeflate };

// "gzip", "deflate"; empty for kIdentity.
std::string_view EncodingName(Encoding encoding);

// Of a Content-Encoding header; none when it is not one of the three.
std::optional<Encoding> ParseContentEncoding(std::string_view header);

// What an Accept-Encoding header likes best, of equals the first. kIdentity when it asks for
// nothing that we have.
Encoding ChooseEncoding(std::string_view accept_header);

// INVALID_ARG when `bytes` are cut short, damaged or followed by others, or when they hold more
// than `max_bytes`. `encoding` is not kIdentity.
Result<ByteBuffer> Decompress(Encoding encoding, std::string_view bytes, size_t max_bytes);

// The pieces as one compressed body.
std::string Compress(Encoding encoding, std::span<const std::string_view> pieces);

}  // namespace nereid::http
