#include "net/peer.h"

#include <netinet/in.h>
#include <sys/socket.h>

namespace nereid::net {
namespace {

// `address` is in network byte order.
bool IsLoopback(in_addr_t address) {
  return (ntohl(address) >> 24) == 127;
}

bool IsLoopback(const in6_addr& address) {
  if (IN6_IS_ADDR_LOOPBACK(&address)) return true;
  // ::ffff:127.0.0.0/104
  return IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127;
}

}  // namespace

bool IsPeerLocal(int fd) {
  sockaddr_storage peer = {};
  socklen_t bytes = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) return false;
  switch (peer.ss_family) {
    case AF_UNIX:
      return true;
    case AF_INET:
      return IsLoopback(reinterpret_cast<const sockaddr_in&>(peer).sin_addr.s_addr);
    case AF_INET6:
      return IsLoopback(reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr);
    default:
      return false;
  }
}

}  // namespace nereid::net
