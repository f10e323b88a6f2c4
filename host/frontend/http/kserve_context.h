// What the endpoints of one port share. Outlives every connection and call. [any thread]
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include "host/frontend/http/calls/header_forwarding.h"
#include "host/frontend/http/calls/reply.h"
#include "nereid/server.h"

namespace nereid {
struct FrontendState;
}

namespace nereid::http {

struct KServeContext {
  const Server& server;
  FrontendState& state;
  HeaderForwarding header_forwarding;
  ResponseAllocator allocator;            // of OutputPolicy
  const std::string binary_content_type;  // of requests, by KServeOptions, as the next two
  const std::string answer_content_type;
  const StatusRule status_of_error;
  std::atomic<size_t> num_calls{0};  // requests that a model still holds
};

}  // namespace nereid::http
