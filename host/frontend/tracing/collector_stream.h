// A connection to a collector, plain or over TLS. Blocks, for its timeout at most at a time.
// [one thread]
#pragma once

#include <sys/types.h>

#include <string_view>

#include "host/frontend/tls/tls_client.h"
#include "host/frontend/tracing/http_url.h"
#include "nereid/status.h"
#include "nereid/unique_fd.h"

namespace nereid {

class CollectorStream {
 public:
  // `tls` is not null where the URL wants it.
  static Result<CollectorStream> Connect(const HttpUrl& url, const TlsClient* tls, int timeout_s);

  bool SendAll(std::string_view bytes);
  // Not above 0: the end, or nothing within the timeout.
  ssize_t Receive(char* block, size_t size);

 private:
  CollectorStream(UniqueFd fd, TlsClientSession session)
      : fd_(std::move(fd)), session_(std::move(session)) {}

  UniqueFd fd_;
  TlsClientSession session_;  // null: plain
};

}  // namespace nereid
