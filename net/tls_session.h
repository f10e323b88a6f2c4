// Server side of one TLS connection: plain bytes at this interface, TLS records on the socket. The
// first reads perform the handshake. [loop thread]
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>

#include "nereid/status.h"
#include "net/tls_context.h"

struct ssl_st;  // OpenSSL's SSL

namespace nereid::net {

class TlsSession {
 public:
  // `fd` outlives the session and is non-blocking.
  static Result<std::unique_ptr<TlsSession>> Create(const TlsContext& context, int fd);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Like read(): returns the number of plain bytes, 0 at the client's end, or -1 with errno. errno
  // is EAGAIN if more bytes from the socket are needed, and EPROTO on a TLS protocol error.
  ssize_t Read(char* data, size_t size);
  // True if Read would return bytes without reading the socket. No socket event announces them.
  bool has_input() const;
  // True if Read is waiting for the socket to become writable.
  bool wants_write() const { return wants_write_; }

  // Returns the number of plain bytes consumed, 0 if the socket is full, -1 if it has failed. After
  // 0 the next call must begin with the same bytes.
  ssize_t Send(const iovec* pieces, size_t count);

  // Sends close_notify, if the socket accepts it.
  void SendCloseNotify();

  // True once the handshake is complete.
  bool is_established() const;
  // True if the client sent plain HTTP instead of TLS.
  bool got_plain_http() const { return got_plain_http_; }

 private:
  explicit TlsSession(ssl_st* ssl) : ssl_(ssl) {}

  ssl_st* ssl_;
  bool wants_write_ = false;
  bool got_plain_http_ = false;
  bool is_broken_ = false;
};

}  // namespace nereid::net
