#include "net/openssl_on_demand.h"

#include <dlfcn.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/opensslv.h>
#include <openssl/ssl.h>

// F(result type, name, parameters, arguments). Functions behind OpenSSL's macros are listed, too.
#define NEREID_OPENSSL_FUNCTIONS(F)                                                          \
  F(void, BIO_clear_flags, (BIO * a, int b), (a, b))                                         \
  F(void*, BIO_get_data, (BIO * a), (a))                                                     \
  F(int, BIO_get_new_index, (), ())                                                          \
  F(BIO_METHOD*, BIO_meth_new, (int a, const char* b), (a, b))                               \
  F(int, BIO_meth_set_ctrl, (BIO_METHOD * a, long (*b)(BIO*, int, long, void*)), (a, b))     \
  F(int, BIO_meth_set_read, (BIO_METHOD * a, int (*b)(BIO*, char*, int)), (a, b))            \
  F(int, BIO_meth_set_write, (BIO_METHOD * a, int (*b)(BIO*, const char*, int)), (a, b))     \
  F(BIO*, BIO_new, (const BIO_METHOD* a), (a))                                               \
  F(void, BIO_set_data, (BIO * a, void* b), (a, b))                                          \
  F(void, BIO_set_flags, (BIO * a, int b), (a, b))                                           \
  F(void, BIO_set_init, (BIO * a, int b), (a, b))                                            \
  F(void, ERR_clear_error, (), ())                                                           \
  F(unsigned long, ERR_get_error, (), ())                                                    \
  F(unsigned long, ERR_peek_error, (), ())                                                   \
  F(const char*, ERR_reason_error_string, (unsigned long a), (a))                            \
  F(int, EVP_DigestFinal_ex, (EVP_MD_CTX * a, unsigned char* b, unsigned* c), (a, b, c))     \
  F(int, EVP_DigestInit_ex, (EVP_MD_CTX * a, const EVP_MD* b, ENGINE* c), (a, b, c))         \
  F(int, EVP_DigestUpdate, (EVP_MD_CTX * a, const void* b, size_t c), (a, b, c))             \
  F(void, EVP_MD_CTX_free, (EVP_MD_CTX * a), (a))                                            \
  F(EVP_MD_CTX*, EVP_MD_CTX_new, (), ())                                                     \
  F(const EVP_MD*, EVP_sha1, (), ())                                                         \
  F(const EVP_MD*, EVP_sha256, (), ())                                                       \
  F(int, SSL_CTX_check_private_key, (const SSL_CTX* a), (a))                                 \
  F(long, SSL_CTX_ctrl, (SSL_CTX * a, int b, long c, void* d), (a, b, c, d))                 \
  F(void, SSL_CTX_free, (SSL_CTX * a), (a))                                                  \
  F(int, SSL_CTX_load_verify_file, (SSL_CTX * a, const char* b), (a, b))                     \
  F(SSL_CTX*, SSL_CTX_new, (const SSL_METHOD* a), (a))                                       \
  F(void, SSL_CTX_set_alpn_select_cb, (SSL_CTX * a, SSL_CTX_alpn_select_cb_func b, void* c), \
    (a, b, c))                                                                               \
  F(void, SSL_CTX_set_client_CA_list, (SSL_CTX * a, STACK_OF(X509_NAME) * b), (a, b))        \
  F(void, SSL_CTX_set_default_passwd_cb, (SSL_CTX * a, pem_password_cb * b), (a, b))         \
  F(uint64_t, SSL_CTX_set_options, (SSL_CTX * a, uint64_t b), (a, b))                        \
  F(int, SSL_CTX_set_session_id_context, (SSL_CTX * a, const unsigned char* b, unsigned c),  \
    (a, b, c))                                                                               \
  F(void, SSL_CTX_set_verify, (SSL_CTX * a, int b, SSL_verify_cb c), (a, b, c))              \
  F(int, SSL_CTX_use_PrivateKey_file, (SSL_CTX * a, const char* b, int c), (a, b, c))        \
  F(int, SSL_CTX_use_certificate_chain_file, (SSL_CTX * a, const char* b), (a, b))           \
  F(long, SSL_ctrl, (SSL * a, int b, long c, void* d), (a, b, c, d))                         \
  F(void, SSL_free, (SSL * a), (a))                                                          \
  F(int, SSL_get_error, (const SSL* a, int b), (a, b))                                       \
  F(int, SSL_is_init_finished, (const SSL* a), (a))                                          \
  F(STACK_OF(X509_NAME)*, SSL_load_client_CA_file, (const char* a), (a))                     \
  F(SSL*, SSL_new, (SSL_CTX * a), (a))                                                       \
  F(int, SSL_pending, (const SSL* a), (a))                                                   \
  F(int, SSL_read, (SSL * a, void* b, int c), (a, b, c))                                     \
  F(int, SSL_select_next_proto,                                                              \
    (unsigned char** a, unsigned char* b, const unsigned char* c, unsigned d,                \
     const unsigned char* e, unsigned f),                                                    \
    (a, b, c, d, e, f))                                                                      \
  F(void, SSL_set_accept_state, (SSL * a), (a))                                              \
  F(void, SSL_set_bio, (SSL * a, BIO * b, BIO * c), (a, b, c))                               \
  F(int, SSL_shutdown, (SSL * a), (a))                                                       \
  F(int, SSL_write, (SSL * a, const void* b, int c), (a, b, c))                              \
  F(const SSL_METHOD*, TLS_server_method, (), ())
// clang-format on

namespace nereid::net {
namespace {

constexpr char kLibrary[] = "libssl.so." OPENSSL_MSTR(OPENSSL_SHLIB_VERSION);

// Pointers to the functions; valid after LoadOpenSsl has returned Ok.
struct OpenSslFunctions {
#define NEREID_POINTER(result, name, parameters, arguments) decltype(&::name) name##_ = nullptr;
  NEREID_OPENSSL_FUNCTIONS(NEREID_POINTER)
#undef NEREID_POINTER
} functions;

// The library is never closed, because sessions live until the process ends.
Status Open() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return UnavailableError("TLS needs ", kLibrary, ": ", dlerror());
  const char* missing = nullptr;
#define NEREID_FIND(result, name, parameters, arguments)                          \
  functions.name##_ = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (functions.name##_ == nullptr) missing = #name;
  NEREID_OPENSSL_FUNCTIONS(NEREID_FIND)
#undef NEREID_FIND
  if (missing != nullptr) return UnavailableError("TLS needs ", kLibrary, " with ", missing);
  return Status::Ok();
}

}  // namespace

Status LoadOpenSsl() {
  static const Status opened = Open();
  return opened;
}

}  // namespace nereid::net

extern "C" {
#define NEREID_FORWARD(result, name, parameters, arguments) \
  result name parameters {                                  \
    return nereid::net::functions.name##_ arguments;        \
  }
NEREID_OPENSSL_FUNCTIONS(NEREID_FORWARD)
#undef NEREID_FORWARD
}
