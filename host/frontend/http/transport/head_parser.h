// Reads the head of a request (RFC 9112), strictly: what two servers could understand differently
// is refused, so that nothing can be smuggled past a proxy. Pure functions. [any thread]
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "host/frontend/http/transport/limits.h"
#include "host/frontend/http/transport/request.h"

namespace nereid::http {

// How many bytes the head takes, its empty line included; none while it is incomplete. The search
// starts at `scanned`, where an earlier call on fewer bytes stopped.
std::optional<size_t> FindHeadEnd(std::string_view bytes, size_t scanned);

// What is wrong with a head: the status to answer with and the reason.
struct HeadError {
  int status;
  const char* reason;
};

// Parses a complete head into `head`, whose views point into `text`.
std::optional<HeadError> ParseHead(std::string_view text, const Limits& limits, RequestHead& head);

}  // namespace nereid::http
