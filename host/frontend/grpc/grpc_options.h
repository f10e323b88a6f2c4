// Options of the gRPC endpoint, filled by the command line. No gRPC header, so that main.cc stays
// cheap to compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "host/frontend/restricted_apis.h"
#include "host/frontend/tls/tls_options.h"

namespace nereid {

struct FrontendState;

// HTTP/2 keep-alive, in the words of the --grpc-keepalive-* and --grpc-max-connection-* flags.
struct GrpcKeepaliveOptions {
  int64_t time_ms = 7'200'000;
  int64_t timeout_ms = 20'000;
  bool permit_without_calls = false;
  int max_pings_without_data = 2;
  int64_t min_recv_ping_interval_without_data_ms = 300'000;
  int max_ping_strikes = 2;
  int64_t max_connection_age_ms = 0;        // 0: connections live as long as they like
  int64_t max_connection_age_grace_ms = 0;  // 0: no limit
};

enum class GrpcCompression { kNone, kLow, kMedium, kHigh };

struct GrpcOptions {
  std::string address = "0.0.0.0";  // a host address, or "unix:<path>" (then no port)
  uint16_t port = 8001;             // 0: any free one, see GrpcServer::port()
  bool is_port_reused = false;      // SO_REUSEPORT
  std::optional<TlsOptions> tls;
  GrpcKeepaliveOptions keepalive;
  GrpcCompression response_compression = GrpcCompression::kNone;

  // Threads for calls that may take long (load and unload of models).
  int control_thread_count = 2;

  // Limits on what a client may send or leave unread.
  size_t max_message_bytes = 2'147'483'647;  // one request; gRPC's own ceiling is 2 GiB - 1
  int max_streams_per_connection = 0;        // 0: gRPC's default, no limit
  size_t max_requests_per_stream = 1024;  // in flight on one ModelStreamInfer; then reading stops
  int64_t write_timeout_ms = 60'000;  // an answer of which the client takes nothing for so long, or
                                      // up to twice as long, is dropped
  size_t max_unsent_bytes_per_stream = 64 << 20;  // beyond it the slow reader's stream is ended

  // A header whose name matches this RE2 pattern in full, letter case aside, becomes a string
  // parameter of the inference request. Empty: none.
  std::string header_forward_pattern;

  RestrictedApis restricted;

  // What the ports share; outlives the server. Not null.
  FrontendState* state = nullptr;
};

}  // namespace nereid
