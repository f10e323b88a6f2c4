// Options of the gRPC endpoint, filled from the command line. Includes no gRPC or protobuf header,
// so that main.cc stays cheap to compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/byte_budget.h"
#include "host/frontend/restricted_apis.h"
#include "net/tls_context.h"

namespace nereid::net {
class ClientTable;
}  // namespace nereid::net

namespace nereid {

class ModelDemand;
struct FrontendState;

// HTTP/2 keep-alive settings; each field has the meaning of the --grpc-keepalive-*, --grpc-http2-*
// or --grpc-max-connection-* flag of the same name.
struct GrpcKeepaliveOptions {
  int64_t time_ms = 7'200'000;
  int64_t timeout_ms = 20'000;
  bool permit_without_calls = false;
  int max_pings_without_data = 2;
  int64_t min_recv_ping_interval_without_data_ms = 300'000;
  int max_ping_strikes = 2;
  int64_t max_connection_age_ms = 0;        // 0: no limit
  int64_t max_connection_age_grace_ms = 0;  // 0: no limit
};

enum class GrpcCompression { kNone, kLow, kMedium, kHigh };

struct GrpcOptions {
  // A host address, or "unix:<path>", for which there is no port.
  std::string address = "0.0.0.0";
  uint16_t port = 8001;         // 0: any free port, see GrpcServer::port()
  bool is_port_reused = false;  // SO_REUSEPORT
  std::optional<net::TlsOptions> tls;
  GrpcKeepaliveOptions keepalive;
  GrpcCompression response_compression = GrpcCompression::kNone;

  // Threads for calls that may block (model load and unload).
  int control_thread_count = 64;

  // Limits on what one client may send or leave unread.
  size_t max_message_bytes = 2'147'483'647;  // of one request; gRPC's own maximum is 2 GiB - 1
  int max_streams_per_connection = 4096;     // concurrent calls; 0: no limit, as in gRPC
  size_t max_connections = 16384;            // open at a time
  // Loads models that requests name. Outlives the server. Null: none is loaded on demand.
  ModelDemand* demand = nullptr;
  // Counts the messages of all calls in flight. Outlives the server. Null: they are not limited.
  ByteBudget* budget = nullptr;
  // Limits what one client may use, and has the same budget. Outlives the server. Null: none is
  // limited.
  net::ClientTable* clients = nullptr;
  size_t max_connection_memory_bytes = 0;  // of `budget` for one connection; 0: no limit
  // Requests in flight on one ModelStreamInfer call; the server stops reading at the limit.
  size_t max_requests_per_stream = 1024;
  // A call is ended if nothing arrives of its request for between one and two times this duration.
  // Between two messages of a stream stream_idle_timeout_ms applies instead.
  int64_t read_timeout_ms = 60'000;
  // A stream is ended if its client may send but has sent nothing, and was sent nothing, for
  // between one and two times this duration. 0: no limit.
  int64_t stream_idle_timeout_ms = 0;
  // A unary response is dropped if the client reads nothing of it for between one and two times
  // this duration. So is a stream whose model waits, if the client reads too slowly.
  int64_t write_timeout_ms = 60'000;
  size_t max_unsent_bytes_per_stream = 64 << 20;  // beyond this size the model waits

  // Headers whose name matches this RE2 pattern, ignoring case, are passed to the model as string
  // parameters of the inference request. Empty: none.
  std::string header_forward_pattern;

  RestrictedApis restricted{"triton-grpc-protocol-"};  // the prefix is Triton's

  // State shared by all ports. Outlives the server. Not null.
  FrontendState* state = nullptr;
};

}  // namespace nereid
