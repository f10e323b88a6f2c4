// Server side of TLS: certificate, private key and client root certificates of one port, loaded and
// checked. Sessions are created with it. Immutable after creation. [any thread]
#pragma once

#include <memory>
#include <string>

#include "nereid/status.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace nereid::net {

// Paths of PEM files. If `is_mutual`, clients must present a certificate signed by one of those in
// `root_cert_path`.
struct TlsOptions {
  std::string flag_prefix = {};  // prefix of the flags in error messages: "--http" or "--grpc"
  std::string server_cert_path = {};
  std::string server_key_path = {};
  std::string root_cert_path = {};
  bool is_mutual = false;
};

class TlsContext {
 public:
  // An error names the flag and the file.
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

}  // namespace nereid::net
