// See http_post.h.
#include "host/frontend/tracing/http_post.h"

#include <netdb.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <string_view>
#include <utility>

#include "nereid/unique_fd.h"

namespace nereid {
namespace {

// Limit for the response; only its status is used.
constexpr size_t kMaxAnswerBytes = 64 << 10;

Status InvalidUrl(const std::string& text) {
  return InvalidArgError("expected a URL of the form [http[s]://]host[:port][/path], got '", text,
                         "'");
}

// The returned descriptor is closed if no address accepts the connection.
UniqueFd ConnectSocket(const HttpUrl& url, int timeout_s) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* addresses = nullptr;
  UniqueFd fd;
  if (getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &addresses) != 0) return fd;
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) {
    fd.Reset(socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    if (!fd.is_open()) continue;
    const timeval timeout{timeout_s, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0) break;
    fd.Reset();
  }
  freeaddrinfo(addresses);
  return fd;
}

// A blocking connection to a collector, plain or over TLS, with a timeout per operation. [one
// thread]
class CollectorStream {
 public:
  // `tls` must not be null if the URL is https.
  static Result<CollectorStream> Connect(const HttpUrl& url, const net::TlsClientContext* tls,
                                         int timeout_s);

  bool SendAll(std::string_view bytes);
  // Returns 0 or less at the end of the stream, on an error and after the timeout.
  ssize_t Receive(char* block, size_t size);

 private:
  CollectorStream(UniqueFd fd, net::TlsClientSession session)
      : fd_(std::move(fd)), session_(std::move(session)) {}

  UniqueFd fd_;
  net::TlsClientSession session_;  // null: plain text
};

Result<CollectorStream> CollectorStream::Connect(const HttpUrl& url,
                                                 const net::TlsClientContext* tls, int timeout_s) {
  UniqueFd fd = ConnectSocket(url, timeout_s);
  if (!fd.is_open()) return UnavailableError("cannot connect");
  net::TlsClientSession session;
  if (url.is_tls) {
    NEREID_ASSIGN_OR_RETURN(session, tls->Connect(fd.get(), url.host));
  }
  return CollectorStream(std::move(fd), std::move(session));
}

bool CollectorStream::SendAll(std::string_view bytes) {
  while (!bytes.empty()) {
    const int size = static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX));
    const ssize_t sent = session_ != nullptr
                             ? SSL_write(session_.get(), bytes.data(), size)
                             : send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && session_ == nullptr && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

ssize_t CollectorStream::Receive(char* block, size_t size) {
  if (session_ != nullptr) return SSL_read(session_.get(), block, static_cast<int>(size));
  ssize_t received;
  do {
    received = recv(fd_.get(), block, size, 0);
  } while (received < 0 && errno == EINTR);
  return received;
}

// Ok if the final status is 2xx.
Status ReadAnswer(CollectorStream& stream, int timeout_s) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
  std::string answer;
  char block[512];
  while (answer.size() < kMaxAnswerBytes && std::chrono::steady_clock::now() < deadline) {
    const ssize_t received = stream.Receive(block, sizeof(block));
    if (received <= 0) break;
    answer.append(block, static_cast<size_t>(received));
    NEREID_ASSIGN_OR_RETURN(const int status, ReadHttpStatus(answer));
    if (status == 0) continue;
    if (status / 100 == 2) return Status::Ok();
    return UnavailableError("expected status 2xx, got ", status);
  }
  return UnavailableError("no response");
}

}  // namespace

Result<HttpUrl> ParseHttpUrl(const std::string& url) {
  const size_t colons = url.find("://");
  const std::string scheme = colons == std::string::npos ? "http" : url.substr(0, colons);
  const bool is_tls = scheme == "https";
  if (!is_tls && scheme != "http") return InvalidUrl(url);
  for (const unsigned char letter : url) {
    if (letter <= ' ' || letter == 0x7f) return InvalidUrl(url);  // would break the request head
  }
  const std::string rest = colons == std::string::npos ? url : url.substr(colons + 3);
  const size_t slash = rest.find('/');
  const std::string authority = rest.substr(0, slash);
  HttpUrl parsed;
  parsed.is_tls = is_tls;
  parsed.path = slash == std::string::npos ? "/" : rest.substr(slash);
  const size_t bracket = authority.find(']');  // of an IPv6 address
  const size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  parsed.host = authority.substr(0, colon);
  if (bracket != std::string::npos && parsed.host.size() > 2) {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  }
  parsed.port = colon == std::string::npos ? (is_tls ? "443" : "80") : authority.substr(colon + 1);
  const bool has_port =
      !parsed.port.empty() && parsed.port.find_first_not_of("0123456789") == std::string::npos;
  if (parsed.host.empty() || !has_port) return InvalidUrl(url);
  return parsed;
}

Result<int> ReadHttpStatus(std::string_view answer) {
  constexpr std::string_view kForm = "HTTP/1.N NNN";  // N: a digit
  while (true) {
    const std::string_view line = answer.substr(0, kForm.size());
    for (size_t i = 0; i < line.size(); ++i) {
      if (kForm[i] == 'N' ? line[i] >= '0' && line[i] <= '9' : line[i] == kForm[i]) continue;
      return UnavailableError("expected an HTTP/1.1 response, got '", line, "'");
    }
    if (line.size() < kForm.size()) return 0;
    const int status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    if (status / 100 != 1) return status;
    // An interim (1xx) response; the final one follows it.
    const size_t end = answer.find("\r\n\r\n");
    if (end == std::string_view::npos) return 0;
    answer.remove_prefix(end + 4);
  }
}

Status HttpPost(const HttpUrl& url, const net::TlsClientContext* tls, std::string_view content_type,
                std::string_view body, int timeout_s) {
  const bool is_ipv6 = url.host.find(':') != std::string::npos;
  const std::string name = StrCat(is_ipv6 ? "[" : "", url.host, is_ipv6 ? "]:" : ":", url.port);
  Result<CollectorStream> stream = CollectorStream::Connect(url, tls, timeout_s);
  if (!stream.ok()) return std::move(stream).status().WithContext(name);
  const std::string head =
      StrCat("POST ", url.path, " HTTP/1.1\r\nHost: ", name, "\r\nContent-Type: ", content_type,
             "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n");
  if (!stream->SendAll(head) || !stream->SendAll(body)) {
    return UnavailableError(name, ": cannot send");
  }
  return ReadAnswer(*stream, timeout_s).WithContext(name);
}

}  // namespace nereid
