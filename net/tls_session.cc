// OpenSSL with a BIO of our own, because its socket BIO would raise SIGPIPE.
#include "net/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace nereid::net {
namespace {

constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;

// The BIO's data is the file descriptor.
int DescriptorOf(BIO* bio) {
  return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
}

bool IsTemporary(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

int WriteSocket(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = send(DescriptorOf(bio), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && IsTemporary(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReadSocket(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t count = recv(DescriptorOf(bio), data, size, MSG_DONTWAIT);
  if (count < 0 && IsTemporary(errno)) BIO_set_retry_read(bio);
  return static_cast<int>(count);
}

long ControlSocket(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// Created once and never freed.
const BIO_METHOD* SocketMethod() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "client socket");
    if (made != nullptr) {
      BIO_meth_set_write(made, &WriteSocket);
      BIO_meth_set_read(made, &ReadSocket);
      BIO_meth_set_ctrl(made, &ControlSocket);
    }
    return made;
  }();
  return method;
}

// Copies the bytes after the first `skip` bytes of `pieces` into `record`. Returns their number.
size_t Gather(const iovec* pieces, size_t count, size_t skip, char* record) {
  size_t filled = 0;
  for (size_t i = 0; i < count && filled < kRecordBytes; ++i) {
    const size_t first = std::min(skip, pieces[i].iov_len);
    skip -= first;
    const size_t bytes = std::min(pieces[i].iov_len - first, kRecordBytes - filled);
    if (bytes == 0) continue;
    std::memcpy(record + filled, static_cast<const char*>(pieces[i].iov_base) + first, bytes);
    filled += bytes;
  }
  return filled;
}

}  // namespace

Result<std::unique_ptr<TlsSession>> TlsSession::Create(const TlsContext& context, int fd) {
  const BIO_METHOD* const method = SocketMethod();
  SSL* const ssl = SSL_new(context.get().get());  // keeps a reference
  if (ssl == nullptr) return UnavailableError("connection: cannot allocate its TLS session");
  std::unique_ptr<TlsSession> session(new TlsSession(ssl));
  BIO* const bio = method == nullptr ? nullptr : BIO_new(method);
  if (bio == nullptr) return UnavailableError("connection: cannot allocate its TLS session");
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl, bio, bio);
  SSL_set_accept_state(ssl);
  return session;
}

TlsSession::~TlsSession() {
  SSL_free(ssl_);
}

ssize_t TlsSession::Read(char* data, size_t size) {
  wants_write_ = false;
  ERR_clear_error();
  errno = 0;
  const int count = SSL_read(ssl_, data, static_cast<int>(std::min<size_t>(size, INT32_MAX)));
  if (count > 0) return count;
  switch (SSL_get_error(ssl_, count)) {
    case SSL_ERROR_WANT_WRITE:
      wants_write_ = true;
      [[fallthrough]];
    case SSL_ERROR_WANT_READ:
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_SYSCALL:
      is_broken_ = true;
      return errno == 0 ? 0 : -1;
    default: {
      is_broken_ = true;
      const int reason = ERR_GET_REASON(ERR_peek_error());
      ERR_clear_error();
      // Many clients close the socket without close_notify.
      if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING) return 0;
      got_plain_http_ = reason == SSL_R_HTTP_REQUEST;
      errno = EPROTO;
      return -1;
    }
  }
}

bool TlsSession::has_input() const {
  return SSL_pending(ssl_) > 0;
}

ssize_t TlsSession::Send(const iovec* pieces, size_t count) {
  char record[kRecordBytes];
  size_t taken = 0;
  while (const size_t bytes = Gather(pieces, count, taken, record)) {
    ERR_clear_error();
    const int sent = SSL_write(ssl_, record, static_cast<int>(bytes));
    if (sent <= 0) {
      if (SSL_get_error(ssl_, sent) == SSL_ERROR_WANT_WRITE) break;
      is_broken_ = true;
      ERR_clear_error();
      return -1;
    }
    taken += sent;
  }
  return static_cast<ssize_t>(taken);
}

void TlsSession::SendCloseNotify() {
  if (!is_broken_ && is_established()) SSL_shutdown(ssl_);
  ERR_clear_error();
}

bool TlsSession::is_established() const {
  return SSL_is_init_finished(ssl_) != 0;
}

}  // namespace nereid::net
