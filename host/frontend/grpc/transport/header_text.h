// Parsing and encoding of gRPC header values, as defined by gRPC over HTTP/2. Pure functions. [any
// thread]
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace nereid::grpc {

// Parses a grpc-timeout header: digits and a unit. nullopt if it is invalid. As in gRPC's own
// servers, spaces around the digits and more than 8 digits are accepted.
std::optional<std::chrono::nanoseconds> ParseTimeout(std::string_view text);

// Percent-encodes a grpc-message: printable ASCII remains. Long texts are truncated, because
// clients limit the size of headers.
std::string PercentEncode(std::string_view text);

// `text` without the spaces at its ends.
std::string_view TrimSpaces(std::string_view text);

// `prefix` is in lower case.
bool StartsWithIgnoringCase(std::string_view text, std::string_view prefix);

// True if a comma-separated list, such as grpc-accept-encoding, contains `name`.
bool ListHas(std::string_view list, std::string_view name);

}  // namespace nereid::grpc
