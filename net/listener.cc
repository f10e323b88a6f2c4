#include "net/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace nereid::net {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr int kBacklog = 1024;

uint16_t PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

// Returns a listening socket, or -1 with errno set.
int ListenOn(int family, const sockaddr* address, socklen_t size, bool reuse_port) {
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  const int off = 0;
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (family != AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (reuse_port) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
  if (bind(fd, address, size) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

bool IsAnyIpv4(const addrinfo& where) {
  return where.ai_family == AF_INET &&
         reinterpret_cast<const sockaddr_in*>(where.ai_addr)->sin_addr.s_addr == INADDR_ANY;
}

int ListenOnAny(uint16_t port, bool reuse_port) {
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(port);
  return ListenOn(AF_INET6, reinterpret_cast<sockaddr*>(&any), sizeof(any), reuse_port);
}

}  // namespace

Result<Listener> Listener::Open(const ListenAddress& address) {
  Listener listener;
  if (address.host.starts_with(kUnixPrefix)) {
    // Accepts both "unix:path" and "unix:///path", as gRPC does.
    std::string path = address.host.substr(kUnixPrefix.size());
    if (path.starts_with("//")) path.erase(0, 2);
    NEREID_RETURN_IF_ERROR(listener.ListenAtPath(path));
  } else {
    NEREID_RETURN_IF_ERROR(listener.ListenAtPort(address));
  }
  return listener;
}

Listener& Listener::operator=(Listener&& other) noexcept {
  if (this == &other) return *this;
  Close();
  fd_ = std::exchange(other.fd_, -1);
  port_ = std::exchange(other.port_, 0);
  path_ = std::exchange(other.path_, {});
  return *this;
}

void Listener::Unlink() {
  if (!path_.empty()) unlink(path_.c_str());
  path_.clear();
}

void Listener::Close() {
  if (fd_ < 0) return;
  Unlink();
  close(std::exchange(fd_, -1));
}

Status Listener::ListenAtPort(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return InvalidArgError("address '", address.host, "': ", gai_strerror(error));
  for (const addrinfo* at = found; at != nullptr && fd_ < 0; at = at->ai_next) {
    if (address.any_is_both_families && IsAnyIpv4(*at)) {
      fd_ = ListenOnAny(address.port, address.reuse_port);
    }
    if (fd_ >= 0) break;  // without IPv6 support the loop continues with the resolved address
    fd_ = ListenOn(at->ai_family, at->ai_addr, at->ai_addrlen, address.reuse_port);
  }
  const int bind_error = errno;
  freeaddrinfo(found);
  if (fd_ < 0) {
    if (bind_error == EADDRINUSE) {
      return UnavailableError("Socket '", address.host, ":", port, "' already in use");
    }
    return UnavailableError("cannot listen at ", address.host, ":", port, ": ",
                            std::strerror(bind_error));
  }
  port_ = PortOf(fd_);
  return Status::Ok();
}

Status Listener::ListenAtPath(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return InvalidArgError("address '", kUnixPrefix, path, "': expected a path of 1 to ",
                           sizeof(address.sun_path) - 1, " bytes, got ", path.size());
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const auto* const where = reinterpret_cast<const sockaddr*>(&address);
  // A server that died leaves its socket file behind. If a connection is refused, no server is
  // running, and the file is removed.
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe >= 0 && connect(probe, where, sizeof(address)) != 0 && errno == ECONNREFUSED) {
    unlink(path.c_str());
  }
  if (probe >= 0) close(probe);
  fd_ = ListenOn(AF_UNIX, where, sizeof(address), /*reuse_port=*/false);
  if (fd_ < 0) {
    return UnavailableError("cannot listen at ", kUnixPrefix, path, ": ", std::strerror(errno));
  }
  path_ = path;
  return Status::Ok();
}

}  // namespace nereid::net
