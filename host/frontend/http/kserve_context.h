// Command line options of the HTTP endpoints, and the state that the endpoints of one port share.
// [any thread]
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include "host/frontend/access_control.h"
#include "host/frontend/http/calls/request_builder.h"
#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/restricted_apis.h"
#include "nereid/server.h"

namespace nereid {
struct FrontendState;
}

namespace nereid::http {

// Command line options of the HTTP endpoints.
struct KServeOptions {
  std::string header_forward_pattern;
  RestrictedApis restricted;
  // The prefix of the Content-Type of bodies with binary tensors, behind which stands the length of
  // the JSON part. Platforms that do not forward custom headers need it. If it is empty, the header
  // Inference-Header-Content-Length has the length.
  std::string binary_content_type;
  bool binary_responses_in_content_type = false;  // also for responses, otherwise only for requests
  HttpStatusMapping http_status_of_error = &DefaultHttpStatus;
};

// Shared by the endpoints of one port. Outlives every connection and call. [any thread]
struct KServeContext {
  const Server& server;
  FrontendState& state;
  const AccessControl access;
  HeaderForwarding header_forwarding;
  ResponseAllocator allocator;            // uses OutputPolicy
  const std::string binary_content_type;  // from KServeOptions, like the next two
  const std::string response_content_type;
  const HttpStatusMapping http_status_of_error;
  std::atomic<size_t> num_calls{0};  // requests that a model still owns
};

}  // namespace nereid::http
