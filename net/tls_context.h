// Server side of TLS: certificate, private key and client root certificates of one port, loaded and
// checked. Sessions are created with it. [any thread]
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nereid/status.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace nereid::net {

enum class TlsVersion { k12, k13 };

// Paths of PEM files. If `is_mutual`, clients must present a certificate signed by one of those in
// `root_cert_path`.
struct TlsOptions {
  std::string flag_prefix = {};  // prefix of the flags in error messages: "--http" or "--grpc"
  std::string server_cert_path = {};
  std::string server_key_path = {};
  std::string root_cert_path = {};
  bool is_mutual = false;
  TlsVersion minimum = TlsVersion::k12;
  bool requires_h2 = false;  // clients must offer the ALPN protocol "h2"

  std::vector<std::string> paths() const {
    return {server_cert_path, server_key_path, root_cert_path};
  }
};

class TlsContext {
 public:
  // An error names the flag and the file.
  static Result<std::unique_ptr<TlsContext>> Create(const TlsOptions& options);

  // Reads the files again. Later sessions use them; existing sessions keep what they have. On an
  // error nothing changes.
  Status Reload();

  std::shared_ptr<ssl_ctx_st> get() const {
    const std::lock_guard lock(mutex_);
    return context_;
  }

 private:
  explicit TlsContext(TlsOptions options) : options_(std::move(options)) {}

  const TlsOptions options_;
  mutable std::mutex mutex_;  // guards context_
  std::shared_ptr<ssl_ctx_st> context_;
};

}  // namespace nereid::net
