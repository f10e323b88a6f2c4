// See tls_context.h. No renegotiation, otherwise OpenSSL's defaults.
#include "net/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <string_view>

#include "net/openssl_on_demand.h"

namespace nereid::net {
namespace {

// Returns the reason of OpenSSL's oldest queued error and clears the error queue.
std::string TakeReason() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "cannot be read" : reason;
}

Status FileError(const TlsOptions& options, std::string_view flag, const std::string& path) {
  return InvalidArgError(options.flag_prefix, flag, " '", path, "': ", TakeReason());
}

// Fails the load of a password-protected key, so that the server does not wait at a prompt.
int RefusePassword(char*, int, int, void*) {
  return -1;
}

Status CheckPaths(const TlsOptions& options) {
  const std::string& prefix = options.flag_prefix;
  if (options.server_cert_path.empty() || options.server_key_path.empty()) {
    return InvalidArgError(prefix, "-use-ssl: needs ", prefix, "-server-cert and ", prefix,
                           "-server-key");
  }
  if (options.is_mutual && options.root_cert_path.empty()) {
    return InvalidArgError(prefix, "-use-ssl-mutual: needs ", prefix, "-root-cert");
  }
  return Status::Ok();
}

// gRPC clients require the ALPN protocol "h2". OpenSSL reads *chosen after the return, so it may
// point into kH2.
int ChooseH2(SSL*, const unsigned char** chosen, unsigned char* chosen_bytes,
             const unsigned char* offered, unsigned int offered_bytes, void*) {
  static constexpr unsigned char kH2[] = {2, 'h', '2'};
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, chosen_bytes, kH2, sizeof(kH2), offered, offered_bytes) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

Status LoadServerCert(const TlsOptions& options, SSL_CTX* context) {
  SSL_CTX_set_default_passwd_cb(context, &RefusePassword);
  const char* const cert = options.server_cert_path.c_str();
  if (SSL_CTX_use_certificate_chain_file(context, cert) != 1) {
    return FileError(options, "-server-cert", options.server_cert_path);
  }
  // This also fails if the key does not belong to the certificate.
  if (SSL_CTX_use_PrivateKey_file(context, options.server_key_path.c_str(), SSL_FILETYPE_PEM) !=
          1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return FileError(options, "-server-key", options.server_key_path);
  }
  return Status::Ok();
}

Status LoadRoots(const TlsOptions& options, SSL_CTX* context) {
  if (options.root_cert_path.empty()) return Status::Ok();
  const char* const roots = options.root_cert_path.c_str();
  if (SSL_CTX_load_verify_file(context, roots) != 1) {
    return FileError(options, "-root-cert", options.root_cert_path);
  }
  if (!options.is_mutual) return Status::Ok();
  SSL_CTX_set_client_CA_list(context, SSL_load_client_CA_file(roots));
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<TlsContext>> TlsContext::Create(const TlsOptions& options) {
  NEREID_RETURN_IF_ERROR(CheckPaths(options));
  NEREID_RETURN_IF_ERROR(LoadOpenSsl());
  std::unique_ptr<TlsContext> tls(new TlsContext(options));
  NEREID_RETURN_IF_ERROR(tls->Reload());
  return tls;
}

Status TlsContext::Reload() {
  ERR_clear_error();
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), [](SSL_CTX* made) {
    if (made != nullptr) SSL_CTX_free(made);
  });
  if (context == nullptr) return InternalError("TLS: ", TakeReason());
  const bool is_13 = options_.minimum == TlsVersion::k13;
  SSL_CTX_set_min_proto_version(context.get(), is_13 ? TLS1_3_VERSION : TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // A write that is not complete may be continued from a different buffer address. Idle sessions
  // keep no buffers.
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  constexpr unsigned char kSessions[] = "nereid";  // only this server's sessions are resumed
  SSL_CTX_set_session_id_context(context.get(), kSessions, sizeof(kSessions) - 1);
  if (options_.requires_h2) SSL_CTX_set_alpn_select_cb(context.get(), &ChooseH2, nullptr);
  NEREID_RETURN_IF_ERROR(LoadServerCert(options_, context.get()));
  NEREID_RETURN_IF_ERROR(LoadRoots(options_, context.get()));
  const std::lock_guard lock(mutex_);
  context_ = std::move(context);
  return Status::Ok();
}

}  // namespace nereid::net
