// What the command line says about the HTTP endpoints.
#pragma once

#include <string>

#include "host/frontend/http/calls/reply.h"
#include "host/frontend/restricted_apis.h"

namespace nereid::http {

struct KServeOptions {
  std::string header_forward_pattern;
  RestrictedApis restricted;
  // Where headers of one's own do not pass: the Content-Type of bodies with binary tensors, to
  // which the length of their JSON part is appended. Empty: Inference-Header-Content-Length has it.
  std::string binary_content_type;
  bool answers_in_content_type = false;  // likewise; else requests alone come so
  StatusRule status_of_error = &UsualStatus;
};

}  // namespace nereid::http
