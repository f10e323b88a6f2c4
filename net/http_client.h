// HTTP requests of the commands and of the exporter of traces, through libcurl. The library is
// opened at run time, because it and its dependencies would slow every start of a server down. [one
// thread at a time]
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::net {

// The status and the headers of an answer; names are in lower case.
struct HttpHead {
  int status = 0;
  std::map<std::string, std::string> headers;

  // Empty if there is no such header.
  std::string Header(const std::string& name) const;
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;                   // http or https
  std::vector<std::string> headers;  // "Name: value"
  std::string body;
  // Seconds without a byte after which the request fails; 0: never.
  int stall_timeout_s = 60;
  int timeout_s = 0;       // for the whole request; 0: without a limit
  std::string roots_path;  // PEM root certificates; empty: SSL_CERT_FILE, else the system's
  // Receives each part of the answer's body. Returns false to end the request. Null: the body is
  // ignored.
  std::function<bool(const HttpHead& head, std::string_view part)> on_body;
  // Asked about once a second, also while nothing arrives: true ends the request. Null: never.
  std::function<bool()> is_cancelled;
};

class HttpClient {
 public:
  // UNAVAILABLE if libcurl is not installed.
  static Result<HttpClient> Create();
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

  // Redirects are not followed: their status is returned like any other. CANCELLED if on_body or
  // is_cancelled ended the request; UNAVAILABLE if the server cannot be reached or the connection
  // was cut.
  Result<HttpHead> Send(const HttpRequest& request);

 private:
  struct Handle;
  explicit HttpClient(std::unique_ptr<Handle> handle);
  std::unique_ptr<Handle> handle_;  // keeps connections open between requests
};

// The status, and the body up to `max_bytes`, beyond which it is INVALID_ARG.
Result<std::string> ReadBody(HttpClient& client, HttpRequest request, size_t max_bytes,
                             HttpHead& head);

}  // namespace nereid::net
