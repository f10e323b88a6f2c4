// What the endpoints of one port share. Outlives every connection and call. [any thread]
#pragma once

#include <atomic>
#include <cstddef>

#include "nereid/server.h"

namespace nereid::http {

struct KServeContext {
  const Server& server;
  ResponseAllocator allocator;       // host memory, one block an output
  std::atomic<size_t> num_calls{0};  // requests that a model still holds
};

}  // namespace nereid::http
