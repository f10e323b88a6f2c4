// What the command line says about the HTTP endpoints.
#pragma once

#include <string>

#include "host/frontend/restricted_apis.h"

namespace nereid::http {

struct KServeOptions {
  std::string header_forward_pattern;
  RestrictedApis restricted;
};

}  // namespace nereid::http
