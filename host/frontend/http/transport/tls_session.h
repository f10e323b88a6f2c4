// TLS over one client's socket: plain bytes on this side, records on the socket. The handshake
// happens within the first reads. [loop thread]
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>

#include "host/frontend/tls/tls_context.h"
#include "nereid/status.h"

struct ssl_st;  // OpenSSL's SSL

namespace nereid::http {

class TlsSession {
 public:
  // Both outlive the session; `fd` does not block.
  static Result<std::unique_ptr<TlsSession>> Create(const TlsContext& context, int fd);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // As read(): the number of plain bytes, 0 at the client's end, -1 with errno, which is EAGAIN
  // where more of the socket is needed and EPROTO where the client does not speak TLS as it should.
  ssize_t Read(char* data, size_t size);
  // Bytes that Read would give without the socket: no event announces them.
  bool has_input() const;
  // Read waits for room in the socket, not for bytes of it.
  bool wants_write() const { return wants_write_; }

  // The number of plain bytes taken, 0 when the socket is full, -1 when it is broken. After 0 the
  // next call begins with the same bytes.
  ssize_t Send(const iovec* pieces, size_t count);

  // Tells the client that nothing follows, as far as the socket takes it.
  void SayGoodbye();

  // The handshake is over.
  bool is_established() const;
  // The client sent HTTP as it stands.
  bool got_plain_http() const { return got_plain_http_; }

 private:
  explicit TlsSession(ssl_st* ssl) : ssl_(ssl) {}

  ssl_st* ssl_;
  bool wants_write_ = false;
  bool got_plain_http_ = false;
  bool is_broken_ = false;
};

}  // namespace nereid::http
