// A listening socket, at a TCP port or at the path of a Unix domain socket. [owner thread]
#pragma once

#include <cstdint>
#include <string>

#include "nereid/status.h"

namespace nereid::net {

struct ListenAddress {
  // a name or an IP address, of which all resolved addresses are tried; or "unix:<path>"
  std::string host;
  uint16_t port = 0;  // 0 chooses a free port; ignored for Unix sockets
  bool reuse_port = false;
  bool any_is_both_families = false;  // 0.0.0.0 also accepts IPv6, if the machine supports it
};

class Listener {
 public:
  static Result<Listener> Open(const ListenAddress& address);
  ~Listener() { Close(); }
  Listener(Listener&& other) noexcept { *this = std::move(other); }
  Listener& operator=(Listener&& other) noexcept;

  int fd() const { return fd_; }
  uint16_t port() const { return port_; }  // 0 for a unix socket
  // Removes the path of a Unix socket, so that a successor can bind it. Clients that wait to be
  // accepted are not affected.
  void Unlink();
  void Close();

 private:
  Listener() = default;
  Status ListenAtPort(const ListenAddress& address);
  Status ListenAtPath(const std::string& path);

  int fd_ = -1;
  uint16_t port_ = 0;
  std::string path_;  // empty for a TCP port
};

}  // namespace nereid::net
