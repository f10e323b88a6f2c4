// One HTTP POST to a collector, plain HTTP/1.1. Blocks. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nereid/status.h"

namespace nereid {

struct HttpUrl {
  std::string host;
  std::string port;
  std::string path;
};

// "http://host[:port][/path]"; https is refused by name.
Result<HttpUrl> ParseHttpUrl(const std::string& url);

// Ok when the answer's status is 2xx. Gives up after `timeout_s` without progress.
Status HttpPost(const HttpUrl& url, std::string_view content_type, std::string_view body,
                int timeout_s);

}  // namespace nereid
