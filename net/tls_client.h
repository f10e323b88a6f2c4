// Client side of TLS: trusted root certificates, and sessions created with them. Immutable after
// creation. [any thread]
#pragma once

#include <memory>
#include <string>

#include "nereid/status.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX
struct ssl_st;      // OpenSSL's SSL

namespace nereid::net {

struct TlsSessionDeleter {
  void operator()(ssl_st* session) const;
};
using TlsClientSession = std::unique_ptr<ssl_st, TlsSessionDeleter>;

class TlsClientContext {
 public:
  // `roots_path` is a PEM file; empty uses the system's root certificates. An error names the file.
  static Result<std::unique_ptr<TlsClientContext>> Create(const std::string& roots_path);
  ~TlsClientContext();
  TlsClientContext(const TlsClientContext&) = delete;
  TlsClientContext& operator=(const TlsClientContext&) = delete;

  // Performs the handshake over the connected, blocking socket `fd`. The server's certificate must
  // be valid for `host`, a name or an IP address.
  Result<TlsClientSession> Connect(int fd, const std::string& host) const;

 private:
  explicit TlsClientContext(ssl_ctx_st* context) : context_(context) {}

  ssl_ctx_st* context_;
};

}  // namespace nereid::net
