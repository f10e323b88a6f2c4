// Where a collector listens. [any thread]
#pragma once

#include <string>

#include "nereid/status.h"

namespace nereid {

struct HttpUrl {
  bool is_tls = false;
  std::string host;
  std::string port;
  std::string path;
};

// "http://host[:port][/path]", which may leave out http://, or https.
Result<HttpUrl> ParseHttpUrl(const std::string& url);

}  // namespace nereid
