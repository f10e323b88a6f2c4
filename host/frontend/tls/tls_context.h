// Certificate, key and roots of a port that speaks TLS, read and checked against each other. What a
// session is made from. Immutable once created. [any thread]
#pragma once

#include <memory>

#include "host/frontend/tls/tls_options.h"
#include "nereid/status.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace nereid {

class TlsContext {
 public:
  // An error names the flag and the file at fault.
  static Result<std::unique_ptr<TlsContext>> Create(const TlsOptions& options);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  Status LoadServerCert(const TlsOptions& options);
  Status LoadRoots(const TlsOptions& options);

  ssl_ctx_st* context_;
};

}  // namespace nereid
