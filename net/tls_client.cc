// See tls_client.h. TLS 1.2 and 1.3; the server's certificate is verified.
#include "net/tls_client.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "net/openssl_on_demand.h"

namespace nereid::net {
namespace {

// Returns the reason of OpenSSL's oldest queued error and clears the error queue.
std::string TakeComplaint() {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* const reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  return reason == nullptr ? "no response" : reason;
}

bool IsAddress(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// Sets the host that the certificate must be valid for. A name is also sent as SNI, because a
// server may have several certificates.
bool Expect(SSL* session, const std::string& host) {
  if (IsAddress(host)) {
    return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host.c_str()) == 1;
  }
  return SSL_set_tlsext_host_name(session, host.c_str()) == 1 &&
         SSL_set1_host(session, host.c_str()) == 1;
}

}  // namespace

void TlsSessionDeleter::operator()(ssl_st* session) const {
  SSL_free(session);
}

Result<std::unique_ptr<TlsClientContext>> TlsClientContext::Create(const std::string& roots_path) {
  NEREID_RETURN_IF_ERROR(LoadOpenSsl());
  ERR_clear_error();
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  if (context == nullptr) return InternalError("TLS: ", TakeComplaint());
  std::unique_ptr<TlsClientContext> client(new TlsClientContext(context));
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  if (roots_path.empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else if (SSL_CTX_load_verify_file(context, roots_path.c_str()) != 1) {
    return InvalidArgError("'", roots_path, "': ", TakeComplaint());
  }
  return client;
}

TlsClientContext::~TlsClientContext() {
  SSL_CTX_free(context_);
}

Result<TlsClientSession> TlsClientContext::Connect(int fd, const std::string& host) const {
  ERR_clear_error();
  TlsClientSession session(SSL_new(context_));
  if (session == nullptr || !Expect(session.get(), host) || SSL_set_fd(session.get(), fd) != 1) {
    return InternalError("TLS with '", host, "': ", TakeComplaint());
  }
  if (SSL_connect(session.get()) == 1) return session;
  const long verdict = SSL_get_verify_result(session.get());
  const std::string reason =
      verdict == X509_V_OK ? TakeComplaint() : X509_verify_cert_error_string(verdict);
  ERR_clear_error();
  return UnavailableError("TLS with '", host, "': ", reason);
}

}  // namespace nereid::net
