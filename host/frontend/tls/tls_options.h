// What the command line says about TLS on one port. No OpenSSL header, so that it stays cheap to
// include.
#pragma once

#include <string>

namespace nereid {

// PEM files. With `is_mutual` a client must show a certificate that one of `root_cert_path` signed.
struct TlsOptions {
  std::string flag_prefix = {};  // of the flags that name the files: "--http" or "--grpc"
  std::string server_cert_path = {};
  std::string server_key_path = {};
  std::string root_cert_path = {};
  bool is_mutual = false;
};

}  // namespace nereid
