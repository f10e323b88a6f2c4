// A socket that listens: at a port of a host's address, or at the path of a unix socket. [owner
// thread]
#pragma once

#include <cstdint>
#include <string>

#include "nereid/status.h"

namespace nereid::http {

struct ListenAddress {
  std::string host;   // a name or a number, all of whose addresses are tried; or "unix:<path>"
  uint16_t port = 0;  // 0 takes a free one; not of unix sockets
  bool reuse_port = false;
  bool any_is_both_families = false;  // 0.0.0.0 means IPv6's too, where the machine has it
};

class Listener {
 public:
  static Result<Listener> Open(const ListenAddress& address);
  ~Listener() { Close(); }
  Listener(Listener&& other) noexcept { *this = std::move(other); }
  Listener& operator=(Listener&& other) noexcept;

  int fd() const { return fd_; }
  uint16_t port() const { return port_; }  // 0 for a unix socket
  // Takes the path of a unix socket away, so that its successor may have it. Clients that wait to
  // be accepted are not touched.
  void Unlink();
  void Close();

 private:
  Listener() = default;
  Status ListenAtPort(const ListenAddress& address);
  Status ListenAtPath(const std::string& path);

  int fd_ = -1;
  uint16_t port_ = 0;
  std::string path_;  // empty: no unix socket
};

}  // namespace nereid::http
