// The other end of a connection. [any thread]
#pragma once

namespace nereid::net {

// True if the peer of the socket `fd` is on this machine: it has a loopback address (127.0.0.0/8,
// ::1, or the former mapped to IPv6), or the socket is a Unix domain socket. False for a descriptor
// that is closed or not connected.
bool IsPeerLocal(int fd);

}  // namespace nereid::net
