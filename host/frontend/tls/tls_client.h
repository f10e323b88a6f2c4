// Whom a client of ours trusts. What a session with a server is made from. Immutable once created.
// [any thread]
#pragma once

#include <memory>
#include <string>

#include "nereid/status.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX
struct ssl_st;      // OpenSSL's SSL

namespace nereid {

struct TlsSessionDeleter {
  void operator()(ssl_st* session) const;
};
using TlsClientSession = std::unique_ptr<ssl_st, TlsSessionDeleter>;

class TlsClient {
 public:
  // `roots_path`: PEM; empty: those of the machine. An error names the file.
  static Result<std::unique_ptr<TlsClient>> Create(const std::string& roots_path);
  ~TlsClient();
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  // A session with `host`, a name or an address, over the connected socket `fd`, which blocks. Its
  // certificate must be that host's.
  Result<TlsClientSession> Connect(int fd, const std::string& host) const;

 private:
  explicit TlsClient(ssl_ctx_st* context) : context_(context) {}

  ssl_ctx_st* context_;
};

}  // namespace nereid
