// What gRPC writes into headers (its protocol over HTTP/2). Pure. [any thread]
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace nereid::rpc {

// Of a grpc-timeout header: at most 8 digits and a unit. None when it is not one.
std::optional<std::chrono::nanoseconds> ParseTimeout(std::string_view text);

// As grpc-message wants it: printable ASCII. Long texts are cut: clients bound their headers.
std::string PercentEncode(std::string_view text);

// Whether a comma-separated list has `name`, as grpc-accept-encoding is one.
bool ListHas(std::string_view list, std::string_view name);

}  // namespace nereid::rpc
