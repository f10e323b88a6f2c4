// Flags of the frontends, log, metrics, traces and cloud platforms.
#include "host/option_table.h"
#include "host/option_values.h"

namespace nereid {
namespace {

using Text = const std::string&;

Status SetBool(bool& target, Text text) {
  NEREID_ASSIGN_OR_RETURN(target, ParseBoolValue(text));
  return Status::Ok();
}
template <typename Int>
Status SetInt(Int& target, Text text, int64_t min, int64_t max) {
  NEREID_ASSIGN_OR_RETURN(const int64_t value, ParseIntValue(text, min, max));
  target = static_cast<Int>(value);
  return Status::Ok();
}
Status SetText(std::string& target, Text text) {
  target = text;
  return Status::Ok();
}

// `setting` is a member of `o`, the options.
#define NEREID_BOOL(setting) [](Options& o, Text text) { return SetBool(o.setting, text); }
#define NEREID_TEXT(setting) [](Options& o, Text text) { return SetText(o.setting, text); }
#define NEREID_INT(setting, min, max) \
  [](Options& o, Text text) { return SetInt(o.setting, text, min, max); }

// As in Triton, the port of a disabled frontend may be any number, so the error is only stored
// here.
template <auto frontend, Status Options::*fault>
Status ApplyPort(Options& options, Text text) {
  const Result<int64_t> port = ParseIntValue(text, 0, 65535);
  if (!ParseIntValue(text, INT64_MIN).ok()) return port.status();
  options.*fault = port.ok() ? Status::Ok() : port.status();
  if (port.ok()) (options.*frontend).port = static_cast<uint16_t>(*port);
  return Status::Ok();
}

// Accepted for compatibility with launch scripts. The setting has no counterpart in this server.
template <const char* name>
Status NoEffect(Options& options, Text text) {
  NEREID_RETURN_IF_ERROR(ParseIntValue(text, 0).status());
  options.ineffective_flags.push_back(name);
  return Status::Ok();
}
constexpr char kGrpcInferThreads[] = "--grpc-infer-thread-count";
constexpr char kGrpcAllocationPool[] = "--grpc-infer-allocation-pool-size";
constexpr char kGrpcResponsePool[] = "--grpc-max-response-pool-size";

Status ApplyCompression(Options& options, Text text) {
  constexpr const char* kLevels[] = {"none", "low", "medium", "high"};
  NEREID_ASSIGN_OR_RETURN(const size_t choice, ParseChoice(text, kLevels));
  options.grpc.response_compression = static_cast<GrpcCompression>(choice);
  return Status::Ok();
}

// An empty path, as of a variable that is not set, would open the server to clients without a key.
Status ApplyApiKeyFile(Options& options, Text text) {
  if (text.empty()) return InvalidArgError("expected the path of a file, got ''");
  return SetText(options.api_key_file, text);
}

Status ApplyConsole(Options& options, Text text) {
  constexpr const char* kStates[] = {"off", "on"};
  NEREID_ASSIGN_OR_RETURN(const size_t choice, ParseChoice(text, kStates));
  options.openai.console = choice == 1;
  return Status::Ok();
}

// Enabling mutual TLS also enables TLS.
template <net::TlsOptions Options::*tls, std::optional<bool> Options::*use>
Status ApplyMutualTls(Options& options, Text text) {
  NEREID_RETURN_IF_ERROR(SetBool((options.*tls).is_mutual, text));
  if ((options.*tls).is_mutual) options.*use = true;
  return Status::Ok();
}

// Stores a call of the C API's setter, and a copy of the value for the frontends.
template <auto setter, bool Options::*copy>
Status ApplyLogBool(Options& options, Text text) {
  NEREID_RETURN_IF_ERROR(SetBool(options.*copy, text));
  const bool value = options.*copy;
  options.core_settings.push_back([value](ServerOptions& core) { return core.Set(setter, value); });
  return Status::Ok();
}

Status ApplyLogVerbose(Options& options, Text text) {
  // Triton also accepts true and false, from the time when the flag was a boolean.
  const bool is_switch = text == "true" || text == "false";
  NEREID_RETURN_IF_ERROR(
      SetInt(options.log_verbose, is_switch ? (text == "true" ? "1" : "0") : text, 0, INT32_MAX));
  const int level = static_cast<int>(options.log_verbose);
  options.core_settings.push_back([level](ServerOptions& core) {
    return core.Set(TRITONSERVER_ServerOptionsSetLogVerbose, level);
  });
  return Status::Ok();
}

Status ApplyLogFormat(Options& options, Text text) {
  if (text != "default" && text != "ISO8601" && text != "json") {
    return InvalidArgError("expected default, ISO8601 or json, got '", text, "'");
  }
  options.log_format = text;
  return Status::Ok();
}

Status ApplyLogFile(Options& options, Text text) {
  options.log_file = text;
  options.core_settings.push_back(
      [text](ServerOptions& core) { return core.Set(TRITONSERVER_ServerOptionsSetLogFile, text); });
  return Status::Ok();
}

template <auto setter>
Status ApplyMetricsBool(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(const bool value, ParseBoolValue(text));
  options.core_settings.push_back([value](ServerOptions& core) { return core.Set(setter, value); });
  return Status::Ok();
}

Status ApplyMetricsInterval(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(const int64_t value, ParseIntValue(text, 1));
  options.core_settings.push_back([value](ServerOptions& core) {
    return core.Set(TRITONSERVER_ServerOptionsSetMetricsInterval, static_cast<uint64_t>(value));
  });
  return Status::Ok();
}

Status ApplyMetricsConfig(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(const NamedSetting setting, ParseNamedSetting(text));
  options.core_settings.push_back([setting](ServerOptions& core) {
    return core.Set(TRITONSERVER_ServerOptionsSetMetricsConfig, setting.name, setting.key,
                    setting.value);
  });
  return Status::Ok();
}

Status ApplyTlsMinimum(Options& options, Text text) {
  constexpr const char* kVersions[] = {"1.2", "1.3"};
  NEREID_ASSIGN_OR_RETURN(const size_t choice, ParseChoice(text, kVersions));
  options.http_tls.minimum = options.grpc_tls.minimum = static_cast<net::TlsVersion>(choice);
  return Status::Ok();
}

template <auto frontend, bool Options::*is_given>
Status ApplyAddress(Options& options, Text text) {
  options.*is_given = true;
  return SetText((options.*frontend).address, text);
}

Status ApplyHost(Options& options, Text text) {
  options.host = text;
  return text.empty() ? InvalidArgError("expected an address, got ''") : Status::Ok();
}

// The deprecated --trace-* flags are converted to settings of --trace-config.
template <const char* setting>
Status ApplyTraceAs(Options& options, Text text) {
  return ApplyTraceConfig(options, StrCat(setting, "=", text));
}
constexpr char kTraceFile[] = "triton,file";
constexpr char kTraceLogFrequency[] = "triton,log-frequency";
constexpr char kTraceLevel[] = "level";
constexpr char kTraceRate[] = "rate";
constexpr char kTraceCount[] = "count";

constexpr std::string_view kShared = "HTTP and gRPC";
constexpr std::string_view kHttp = "HTTP";
constexpr std::string_view kGrpc = "gRPC";
constexpr std::string_view kMetrics = "Metrics";
constexpr std::string_view kLog = "Log";
constexpr std::string_view kTrace = "Trace";
constexpr std::string_view kSageMaker = "SageMaker";
constexpr std::string_view kVertexAi = "Vertex AI";

const Flag kFrontendFlags[] = {
    {kShared, "--host", "address",
     "The address of every port whose own flag is not given. Default: 127.0.0.1; under the program "
     "name tritonserver 0.0.0.0.",
     &ApplyHost},
    {kShared, "--remote-admin", "[=boolean]",
     "Clients on other machines may load and unload models, change log and trace settings and "
     "register shared memory, without an API key. Default: false; under the program name "
     "tritonserver true.",
     NEREID_BOOL(access.allows_remote_admin)},
    {kShared, "--allow-inline-models", "[=boolean]",
     "Load requests may carry a model's configuration and files, and thereby code. Default: false; "
     "under the program name tritonserver true.",
     NEREID_BOOL(access.allows_inline_models)},
    {kShared, "--allow-client-shm", "boolean",
     "Clients may register and unregister shared memory. Default: false.",
     NEREID_BOOL(access.allows_client_shm)},
    {kShared, "--client-shm-max-regions", "integer",
     "The maximum number of shared-memory regions that clients may register. Default: 1024.",
     NEREID_INT(client_shm_limits.max_regions, 0, INT32_MAX)},
    {kShared, "--client-shm-max-bytes", "integer",
     "The maximum total size of the registered shared-memory regions. Default: 68719476736.",
     NEREID_INT(client_shm_limits.max_bytes, 0, INT64_MAX)},
    {kShared, "--max-request-memory-size", "integer",
     "The maximum number of bytes of the requests in flight over HTTP and gRPC together; 0 means "
     "no limit. A request that exceeds it gets 503 or UNAVAILABLE. Default: half of the memory "
     "that the process may use.",
     [](Options& o, Text text) {
       return SetInt(o.max_request_memory_bytes.emplace(), text, 0, INT64_MAX);
     }},
    {kShared, "--max-client-memory-size", "integer",
     "The maximum number of bytes of the requests in flight from one address, as a part of "
     "--max-request-memory-size; 0 means no limit. Local clients have no such limit. Default: half "
     "of it.",
     [](Options& o, Text text) {
       return SetInt(o.max_client_memory_bytes.emplace(), text, 0, INT64_MAX);
     }},
    {kShared, "--max-client-connections", "integer",
     "The maximum number of open HTTP and gRPC connections from one address; 0 means no limit. "
     "Local clients have no such limit. Default: 8192.",
     NEREID_INT(max_client_connections, 0, INT32_MAX)},
    {kShared, "--api-key-file", "path",
     "A file with hashed API keys and their rights. Then every request needs a key, except those "
     "for the server's health. The server reads the file again when it changes.",
     &ApplyApiKeyFile},
    {kShared, "--tls-minimum", "1.2|1.3",
     "The lowest version of TLS that the HTTP and gRPC ports accept. Default: 1.2.",
     &ApplyTlsMinimum},

    {kHttp, "--allow-http", "boolean", "The server opens the HTTP port. Default: true.",
     NEREID_BOOL(allow_http)},
    {kHttp, "--http-address", "address", "The address of the HTTP port. Default: that of --host.",
     &ApplyAddress<&Options::http, &Options::has_http_address>},
    {kHttp, "--http-port", "integer", "The number of the HTTP port. Default: 8000.",
     &ApplyPort<&Options::http, &Options::http_port_error>},
    {kHttp, "--reuse-http-port", "boolean",
     "Other processes may share the HTTP port. Default: false.", NEREID_BOOL(http.reuse_port)},
    {kHttp, "--http-thread-count", "integer",
     "The number of event loops of the HTTP port. Default: one for each core, at most 8.",
     NEREID_INT(http.num_threads, 1, 1024)},
    {kHttp, "--http-max-input-size", "integer",
     "The maximum size of a request body in bytes. Default: 67108864.",
     NEREID_INT(http.limits.max_body_bytes, 1, INT64_MAX)},
    {kHttp, "--http-header-forward-pattern", "pattern",
     "Headers whose names match this regular expression become parameters of requests.",
     NEREID_TEXT(kserve.header_forward_pattern)},
    {kHttp, "--http-restricted-api", "groups:key=value",
     "These groups of endpoints require the header <key> with this value. The flag may be given "
     "several times.",
     [](Options& o, Text text) { return o.kserve.restricted.Add(text); }},
    {kHttp, "--http-restricted-api-file", "path",
     "A file whose lines are values of --http-restricted-api, so that the secrets stand on no "
     "command line.",
     [](Options& o, Text text) { return o.kserve.restricted.AddFile(text); }},
    {kHttp, "--cors-origin", "origin",
     "Web pages of this origin, <scheme>://<host>[:<port>], may use the HTTP port; * means all "
     "pages. The flag may be given several times.",
     [](Options& o, Text text) {
       o.openai.cors_origins.push_back(text);
       return openai::CheckOrigin(text);
     }},
    {kHttp, "--console", "on|off",
     "The HTTP port serves a web console at /console: a playground, models, load and requests in "
     "flight. Where other machines reach the port, it needs --api-key-file. Default: off; with "
     "'nereid serve' on where only this machine reaches the port.",
     &ApplyConsole},
    {kHttp, "--max-stored-responses", "integer",
     "The maximum number of responses of POST /v1/responses that the server keeps for their "
     "clients, in up to 64 MiB; 0 means none. Default: 1000.",
     NEREID_INT(openai.max_stored_responses, 0, INT32_MAX)},
    {kHttp, "--max-stored-response-age-secs", "integer",
     "The number of seconds after which the server forgets a response. Default: 3600.",
     NEREID_INT(openai.max_stored_age_s, 1, INT32_MAX)},
    {kHttp, "--stream-keep-alive-secs", "integer",
     "The number of seconds without an event after which a stream of OpenAI's and Anthropic's "
     "routes gets a comment or a ping, so that proxies do not close it. Default: 15.",
     NEREID_INT(openai.keep_alive_s, 1, INT32_MAX)},
    {kHttp, "--http-use-ssl", "boolean", "The HTTP port uses TLS (https). Default: false.",
     NEREID_BOOL(use_http_tls.emplace())},
    {kHttp, "--http-use-ssl-mutual", "boolean",
     "The HTTP port uses TLS, and clients must present a certificate. Default: false.",
     &ApplyMutualTls<&Options::http_tls, &Options::use_http_tls>},
    {kHttp, "--http-server-cert", "path", "The PEM file of the server certificate.",
     NEREID_TEXT(http_tls.server_cert_path)},
    {kHttp, "--http-server-key", "path", "The PEM file of the server's private key.",
     NEREID_TEXT(http_tls.server_key_path)},
    {kHttp, "--http-root-cert", "path",
     "The PEM file of the root certificates that sign client certificates.",
     NEREID_TEXT(http_tls.root_cert_path)},
    {kHttp, "--http-max-connections", "integer",
     "The maximum number of open connections. Default: 16384.",
     NEREID_INT(http.limits.max_connections, 1, INT32_MAX)},
    {kHttp, "--http-max-header-size", "integer",
     "The maximum size of a request head in bytes. Default: 65536.",
     NEREID_INT(http.limits.max_head_bytes, 1024, INT32_MAX)},
    {kHttp, "--http-max-headers", "integer",
     "The maximum number of headers of a request. Default: 128.",
     NEREID_INT(http.limits.max_headers, 1, 65536)},
    {kHttp, "--http-max-json-depth", "integer",
     "The maximum nesting depth of a JSON body. Default: 103, which is 100 within the data of a "
     "tensor.",
     NEREID_INT(http.limits.max_json_depth, 4, 1000)},
    {kHttp, "--http-max-unsent-size", "integer",
     "A model waits before it sends further responses of a stream while its client has more bytes "
     "than this unread. Default: 16777216.",
     NEREID_INT(http.limits.max_unsent_bytes, 1, INT64_MAX)},
    {kHttp, "--http-idle-timeout-secs", "integer",
     "The server closes a connection that has no request for this number of seconds. Default: 600.",
     NEREID_INT(http.limits.idle_timeout_s, 1, INT32_MAX)},
    {kHttp, "--http-read-timeout-secs", "integer",
     "The server closes a connection if a client pauses for this number of seconds within a "
     "request. Default: 60.",
     NEREID_INT(http.limits.read_timeout_s, 1, INT32_MAX)},
    {kHttp, "--http-write-timeout-secs", "integer",
     "The server closes a connection if a client reads nothing of a response for this number of "
     "seconds, or less than 4096 bytes a second of a stream. Default: 60.",
     NEREID_INT(http.limits.write_timeout_s, 1, INT32_MAX)},

    {kGrpc, "--allow-grpc", "boolean", "The server opens the gRPC port. Default: true.",
     NEREID_BOOL(allow_grpc)},
    {kGrpc, "--grpc-address", "address", "The address of the gRPC port. Default: that of --host.",
     &ApplyAddress<&Options::grpc, &Options::has_grpc_address>},
    {kGrpc, "--grpc-port", "integer", "The number of the gRPC port. Default: 8001.",
     &ApplyPort<&Options::grpc, &Options::grpc_port_error>},
    {kGrpc, "--reuse-grpc-port", "boolean",
     "Other processes may share the gRPC port. Default: false.", NEREID_BOOL(grpc.is_port_reused)},
    {kGrpc, kGrpcInferThreads, "integer",
     "Accepted for compatibility; it has no effect, because calls need no threads of their own.",
     &NoEffect<kGrpcInferThreads>},
    {kGrpc, kGrpcAllocationPool, "integer", "Accepted for compatibility; it has no effect.",
     &NoEffect<kGrpcAllocationPool>},
    {kGrpc, kGrpcResponsePool, "integer", "Accepted for compatibility; it has no effect.",
     &NoEffect<kGrpcResponsePool>},
    {kGrpc, "--grpc-max-message-size", "integer",
     "The maximum size of a request message in bytes. Default: 2147483647.",
     NEREID_INT(grpc.max_message_bytes, 1, INT32_MAX)},
    {kGrpc, "--grpc-max-streams", "integer",
     "The maximum number of concurrent calls on a connection; 0 means no limit. Default: 4096.",
     NEREID_INT(grpc.max_streams_per_connection, 0, INT32_MAX)},
    {kGrpc, "--grpc-max-connections", "integer",
     "The maximum number of open connections. Default: 16384.",
     NEREID_INT(grpc.max_connections, 1, INT32_MAX)},
    {kGrpc, "--grpc-max-connection-memory-size", "integer",
     "The maximum number of bytes of the requests in flight on one connection, as a part of "
     "--max-request-memory-size; 0 means no limit. Default: half of it.",
     [](Options& o, Text text) {
       return SetInt(o.grpc_max_connection_memory_bytes.emplace(), text, 0, INT64_MAX);
     }},
    {kGrpc, "--grpc-max-requests-per-stream", "integer",
     "The maximum number of requests in flight on one ModelStreamInfer call. The server reads "
     "further requests later. Default: 1024.",
     NEREID_INT(grpc.max_requests_per_stream, 1, INT32_MAX)},
    {kGrpc, "--grpc-max-unsent-size", "integer",
     "A model waits before it sends further responses of a call while its client has more bytes "
     "than this unread. Default: 67108864.",
     NEREID_INT(grpc.max_unsent_bytes_per_stream, 1, INT64_MAX)},
    {kGrpc, "--grpc-read-timeout", "ms",
     "The server ends a call if nothing arrives of its request for this time, or for up to twice "
     "as "
     "long. Default: 60000.",
     NEREID_INT(grpc.read_timeout_ms, 1, 86'400'000)},
    {kGrpc, "--grpc-stream-idle-timeout", "ms",
     "The server ends a ModelStreamInfer call whose client has not ended its side if nothing is "
     "sent in either direction for this time, or for up to twice as long; 0 means no limit. It "
     "must be longer than the longest pause between two responses. Default: 0.",
     NEREID_INT(grpc.stream_idle_timeout_ms, 0, 604'800'000)},
    {kGrpc, "--grpc-write-timeout", "ms",
     "The server drops a response if its client reads nothing of it for this time, or for up to "
     "twice as long. The same holds for a call whose model waits and whose client reads less than "
     "4096 bytes a second. Default: 60000.",
     NEREID_INT(grpc.write_timeout_ms, 1, 86'400'000)},
    {kGrpc, "--grpc-header-forward-pattern", "pattern",
     "Headers whose names match this regular expression become parameters of requests.",
     NEREID_TEXT(grpc.header_forward_pattern)},
    {kGrpc, "--grpc-restricted-protocol", "groups:key=value",
     "These groups of calls require the header triton-grpc-protocol-<key> with this value. The "
     "flag may be given several times.",
     [](Options& o, Text text) { return o.grpc.restricted.Add(text); }},
    {kGrpc, "--grpc-restricted-protocol-file", "path",
     "A file whose lines are values of --grpc-restricted-protocol, so that the secrets stand on no "
     "command line.",
     [](Options& o, Text text) { return o.grpc.restricted.AddFile(text); }},
    {kGrpc, "--grpc-use-ssl", "boolean", "The gRPC port uses TLS. Default: false.",
     NEREID_BOOL(use_grpc_tls.emplace())},
    {kGrpc, "--grpc-use-ssl-mutual", "boolean",
     "The gRPC port uses TLS, and clients must present a certificate. Default: false.",
     &ApplyMutualTls<&Options::grpc_tls, &Options::use_grpc_tls>},
    {kGrpc, "--grpc-server-cert", "path", "The PEM file of the server certificate.",
     NEREID_TEXT(grpc_tls.server_cert_path)},
    {kGrpc, "--grpc-server-key", "path", "The PEM file of the server's private key.",
     NEREID_TEXT(grpc_tls.server_key_path)},
    {kGrpc, "--grpc-root-cert", "path",
     "The PEM file of the root certificates that sign client certificates.",
     NEREID_TEXT(grpc_tls.root_cert_path)},
    {kGrpc, "--grpc-infer-response-compression-level", "none|low|medium|high",
     "The compression level of inference responses. Default: none.", &ApplyCompression},
    {kGrpc, "--grpc-keepalive-time", "ms",
     "The server pings a client that has been silent for this time. Default: 7200000.",
     NEREID_INT(grpc.keepalive.time_ms, 0, INT64_MAX)},
    {kGrpc, "--grpc-keepalive-timeout", "ms",
     "The server closes a connection if a ping is not answered within this time. Default: 20000.",
     NEREID_INT(grpc.keepalive.timeout_ms, 0, INT64_MAX)},
    {kGrpc, "--grpc-keepalive-permit-without-calls", "boolean",
     "Server and client may send pings while no call is open. Default: false.",
     NEREID_BOOL(grpc.keepalive.permit_without_calls)},
    {kGrpc, "--grpc-http2-max-pings-without-data", "integer",
     "The maximum number of pings that the server sends without sending data; 0 means no limit. "
     "Default: 2.",
     NEREID_INT(grpc.keepalive.max_pings_without_data, 0, INT32_MAX)},
    {kGrpc, "--grpc-http2-min-recv-ping-interval-without-data", "ms",
     "The minimum time between two pings of a client while no data is sent. Default: 300000.",
     NEREID_INT(grpc.keepalive.min_recv_ping_interval_without_data_ms, 0, INT64_MAX)},
    {kGrpc, "--grpc-http2-max-ping-strikes", "integer",
     "The server closes a connection after more early pings than this; 0 means no limit. Default: "
     "2.",
     NEREID_INT(grpc.keepalive.max_ping_strikes, 0, INT32_MAX)},
    {kGrpc, "--grpc-max-connection-age", "ms",
     "The server closes a connection gracefully after this time; 0 means never. Default: 0.",
     NEREID_INT(grpc.keepalive.max_connection_age_ms, 0, INT64_MAX)},
    {kGrpc, "--grpc-max-connection-age-grace", "ms",
     "The time that calls get to complete after --grpc-max-connection-age; 0 means no limit. "
     "Default: 0.",
     NEREID_INT(grpc.keepalive.max_connection_age_grace_ms, 0, INT64_MAX)},

    {kMetrics, "--allow-metrics", "boolean",
     "The server opens the metrics port and collects metrics. Default: true.",
     NEREID_BOOL(allow_metrics)},
    {kMetrics, "--metrics-address", "address",
     "The address of the metrics port. Default: the address of the HTTP port.",
     &ApplyAddress<&Options::metrics, &Options::has_metrics_address>},
    {kMetrics, "--metrics-port", "integer", "The number of the metrics port. Default: 8002.",
     &ApplyPort<&Options::metrics, &Options::metrics_port_error>},
    {kMetrics, "--allow-gpu-metrics", "boolean",
     "The metrics include those of GPUs. Default: true.",
     &ApplyMetricsBool<TRITONSERVER_ServerOptionsSetGpuMetrics>},
    {kMetrics, "--allow-cpu-metrics", "boolean",
     "The metrics include those of the CPU. Default: true.",
     &ApplyMetricsBool<TRITONSERVER_ServerOptionsSetCpuMetrics>},
    {kMetrics, "--metrics-interval-ms", "integer",
     "The minimum number of milliseconds between two readings of the CPU, the GPUs and pinned "
     "memory. Default: 2000.",
     &ApplyMetricsInterval},
    {kMetrics, "--metrics-config", "[name,]key=value",
     "Sets counter_latencies, histogram_latencies, summary_latencies or summary_quantiles.",
     &ApplyMetricsConfig},

    {kLog, "--log-verbose", "integer",
     "The level of verbose log messages; 0 disables them. Default: 0.", &ApplyLogVerbose},
    {kLog, "--log-info", "boolean", "The server logs messages of level info. Default: true.",
     &ApplyLogBool<TRITONSERVER_ServerOptionsSetLogInfo, &Options::log_info>},
    {kLog, "--log-warning", "boolean", "The server logs warnings. Default: true.",
     &ApplyLogBool<TRITONSERVER_ServerOptionsSetLogWarn, &Options::log_warning>},
    {kLog, "--log-error", "boolean", "The server logs errors. Default: true.",
     &ApplyLogBool<TRITONSERVER_ServerOptionsSetLogError, &Options::log_error>},
    {kLog, "--log-format", "default|ISO8601|json",
     "The format of log lines. With json each line is a JSON object. Default: default.",
     &ApplyLogFormat},
    {kLog, "--access-log", "path",
     "A file to which the HTTP port appends a line of JSON for each request: method, path, status, "
     "id, model, numbers of tokens and durations, but no text; - means standard error. Default: "
     "none.",
     NEREID_TEXT(openai.access_log)},
    {kLog, "--log-file", "path", "The file to which the server logs. Default: standard error.",
     &ApplyLogFile},

    {kTrace, "--trace-config", "[mode,]key=value",
     "Sets one trace setting. The settings are mode=triton|opentelemetry, level, rate and count; "
     "triton,file and triton,log-frequency; opentelemetry,url, opentelemetry,resource and "
     "opentelemetry,bsp_*.",
     &ApplyTraceConfig},
    {kTrace, "--trace-file", "path", "Deprecated form of --trace-config triton,file=<path>.",
     &ApplyTraceAs<kTraceFile>},
    {kTrace, "--trace-level", "level", "Deprecated form of --trace-config level=<level>.",
     &ApplyTraceAs<kTraceLevel>},
    {kTrace, "--trace-rate", "integer", "Deprecated form of --trace-config rate=<integer>.",
     &ApplyTraceAs<kTraceRate>},
    {kTrace, "--trace-count", "integer", "Deprecated form of --trace-config count=<integer>.",
     &ApplyTraceAs<kTraceCount>},
    {kTrace, "--trace-log-frequency", "integer",
     "Deprecated form of --trace-config triton,log-frequency=<integer>.",
     &ApplyTraceAs<kTraceLogFrequency>},

    {kSageMaker, "--allow-sagemaker", "boolean",
     "The server opens the SageMaker port with the routes /ping, /invocations and /models. "
     "Default: false.",
     NEREID_BOOL(allow_sagemaker)},
    {kSageMaker, "--sagemaker-port", "integer", "The number of the SageMaker port. Default: 8080.",
     NEREID_INT(sagemaker.port, 0, 65535)},
    {kSageMaker, "--sagemaker-safe-port-range", "first-last",
     "The HTTP, gRPC and metrics ports must be in this range.", &ApplySafePortRange},
    {kSageMaker, "--sagemaker-thread-count", "integer",
     "The number of event loops of the SageMaker port. Default: one for each core, at most 8.",
     NEREID_INT(sagemaker.num_threads, 1, 1024)},
    {kVertexAi, "--allow-vertex-ai", "boolean",
     "The server opens the Vertex AI port with the routes in AIP_PREDICT_ROUTE and "
     "AIP_HEALTH_ROUTE. Default: true if AIP_MODE is PREDICTION, which also changes the default of "
     "--allow-http and --allow-grpc to false; otherwise false.",
     NEREID_BOOL(allow_vertex_ai)},
    {kVertexAi, "--vertex-ai-port", "integer",
     "The number of the Vertex AI port. Default: AIP_HTTP_PORT if that is set, otherwise 8080.",
     NEREID_INT(vertex_ai.port, 0, 65535)},
    {kVertexAi, "--vertex-ai-thread-count", "integer",
     "The number of event loops of the Vertex AI port. Default: one for each core, at most 8.",
     NEREID_INT(vertex_ai.num_threads, 1, 1024)},
    {kVertexAi, "--vertex-ai-default-model", "name",
     "The model that answers predictions. Default: the only ready model.",
     NEREID_TEXT(vertex_ai_routes.default_model)},
};

#undef NEREID_BOOL
#undef NEREID_TEXT
#undef NEREID_INT

}  // namespace

std::span<const Flag> FrontendFlags() {
  return kFrontendFlags;
}

}  // namespace nereid
