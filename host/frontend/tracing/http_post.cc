#include "tracing/http_post.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace nereid {
namespace {

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

int Connect(const HttpUrl& url, int timeout_s) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* addresses = nullptr;
  if (getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &addresses) != 0) return -1;
  int fd = -1;
  for (const addrinfo* at = addresses; at != nullptr && fd < 0; at = at->ai_next) {
    fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (fd < 0) continue;
    const timeval timeout{timeout_s, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    if (connect(fd, at->ai_addr, at->ai_addrlen) == 0) break;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(addresses);
  return fd;
}

bool SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

Result<HttpUrl> ParseHttpUrl(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) {
    return InvalidArgError("expected a URL of the form http://host[:port][/path], got '", url, "'");
  }
  const std::string rest = url.substr(kScheme.size());
  const size_t slash = rest.find('/');
  const std::string authority = rest.substr(0, slash);
  HttpUrl parsed;
  parsed.path = slash == std::string::npos ? "/" : rest.substr(slash);
  const size_t bracket = authority.find(']');  // of an IPv6 address
  const size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  parsed.host = authority.substr(0, colon);
  if (bracket != std::string::npos && parsed.host.size() > 2) {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  }
  parsed.port = colon == std::string::npos ? "80" : authority.substr(colon + 1);
  const bool has_port =
      !parsed.port.empty() && parsed.port.find_first_not_of("0123456789") == std::string::npos;
  if (parsed.host.empty() || !has_port) {
    return InvalidArgError("expected a URL of the form http://host[:port][/path], got '", url, "'");
  }
  return parsed;
}

Status HttpPost(const HttpUrl& url, std::string_view content_type, std::string_view body,
                int timeout_s) {
  const Socket socket(Connect(url, timeout_s));
  if (socket.get() < 0) return UnavailableError("cannot connect to ", url.host, ":", url.port);
  const std::string head =
      StrCat("POST ", url.path, " HTTP/1.1\r\nHost: ", url.host, ":", url.port,
             "\r\nContent-Type: ", content_type, "\r\nContent-Length: ", body.size(),
             "\r\nConnection: close\r\n\r\n");
  if (!SendAll(socket.get(), head) || !SendAll(socket.get(), body)) {
    return UnavailableError("cannot send to ", url.host, ":", url.port);
  }
  std::string answer;
  char block[512];
  while (answer.size() < 12) {
    const ssize_t received = recv(socket.get(), block, sizeof(block), 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) break;
    answer.append(block, static_cast<size_t>(received));
  }
  if (answer.size() >= 12 && answer[9] == '2') return Status::Ok();
  return UnavailableError(url.host, ":", url.port, " answered '",
                          answer.substr(0, answer.find('\r')), "'");
}

}  // namespace nereid
