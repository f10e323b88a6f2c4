// One blocking HTTP/1.1 POST to a trace collector, plain or over TLS. [any thread]
#pragma once

#include <string>
#include <string_view>

#include "nereid/status.h"
#include "net/tls_client.h"

namespace nereid {

struct HttpUrl {
  bool is_tls = false;
  std::string host;
  std::string port;
  std::string path;
};

// Parses "[http[s]://]host[:port][/path]"; the default scheme is http.
Result<HttpUrl> ParseHttpUrl(const std::string& url);

// Returns the status of a response of which `answer` is the beginning; 0 if more bytes are needed.
// The error for bytes that are not HTTP/1 quotes their beginning.
Result<int> ReadHttpStatus(std::string_view answer);

// Ok if the response status is 2xx. Gives up after `timeout_s` without progress, or about twice
// that if the response arrives slowly. `tls` must not be null if the URL is https.
Status HttpPost(const HttpUrl& url, const net::TlsClientContext* tls, std::string_view content_type,
                std::string_view body, int timeout_s);

}  // namespace nereid
