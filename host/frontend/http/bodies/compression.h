// Compressed bodies: gzip and deflate (RFC 9110, 8.4). Pure. [any thread]
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

// Returns "gzip" or "deflate", and an empty string for kIdentity.
std::string_view EncodingName(Encoding encoding);

// Parses a Content-Encoding header. Returns none for any other encoding.
std::optional<Encoding> ParseContentEncoding(std::string_view header);

// Returns the supported encoding with the highest weight in an Accept-Encoding header, and the
// first one of equal weights. Returns kIdentity if the header names no supported encoding.
Encoding ChooseEncoding(std::string_view accept_header);

// Returns INVALID_ARG if `bytes` are truncated, damaged or followed by further bytes, or if they
// expand to more than `max_bytes`. `encoding` is not kIdentity.
Result<ByteBuffer> Decompress(Encoding encoding, std::string_view bytes, size_t max_bytes);

// Compresses the concatenated `pieces` into one body.
std::string Compress(Encoding encoding, std::span<const std::string_view> pieces);

}  // namespace nereid::http
