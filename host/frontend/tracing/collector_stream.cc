#include "host/frontend/tracing/collector_stream.h"

#include <netdb.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace nereid {
namespace {

// Closed: nobody took the connection.
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

}  // namespace

Result<CollectorStream> CollectorStream::Connect(const HttpUrl& url, const TlsClient* tls,
                                                 int timeout_s) {
  UniqueFd fd = ConnectSocket(url, timeout_s);
  if (!fd.is_open()) return UnavailableError("cannot connect");
  TlsClientSession session;
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

}  // namespace nereid
