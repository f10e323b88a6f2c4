// Flags of the frontends, the log and the metrics.
#include "host/cloud_flags.h"
#include "host/option_table.h"
#include "host/option_values.h"
#include "host/trace_flags.h"

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

// `setting` is an lvalue in terms of `o`, the options.
#define NEREID_BOOL(setting) [](Options& o, Text text) { return SetBool(o.setting, text); }
#define NEREID_TEXT(setting) [](Options& o, Text text) { return SetText(o.setting, text); }
#define NEREID_INT(setting, min, max) \
  [](Options& o, Text text) { return SetInt(o.setting, text, min, max); }

// A port of a frontend that is switched off may be any number, as with Triton.
template <auto frontend, Status Options::*fault>
Status ApplyPort(Options& options, Text text) {
  const Result<int64_t> port = ParseIntValue(text, 0, 65535);
  if (!ParseIntValue(text, INT64_MIN).ok()) return port.status();
  options.*fault = port.ok() ? Status::Ok() : port.status();
  if (port.ok()) (options.*frontend).port = static_cast<uint16_t>(*port);
  return Status::Ok();
}

// Accepted because scripts give it; it tunes what this server does in another way.
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

// TLS with certificates on both sides is TLS.
template <TlsOptions Options::*tls, bool Options::*use>
Status ApplyMutualTls(Options& options, Text text) {
  NEREID_RETURN_IF_ERROR(SetBool((options.*tls).is_mutual, text));
  options.*use = options.*use || (options.*tls).is_mutual;
  return Status::Ok();
}

// The C API's setter, and a copy for the frontends.
template <auto setter, bool Options::*copy>
Status ApplyLogBool(Options& options, Text text) {
  NEREID_RETURN_IF_ERROR(SetBool(options.*copy, text));
  const bool value = options.*copy;
  options.core_settings.push_back([value](ServerOptions& core) { return core.Set(setter, value); });
  return Status::Ok();
}

Status ApplyLogVerbose(Options& options, Text text) {
  // It was a switch once, and Triton takes it as one to this day.
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

Status ApplyMetricsAddress(Options& options, Text text) {
  options.has_metrics_address = true;
  return SetText(options.metrics.address, text);
}

// The older flags are settings of --trace-config.
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

const Flag kFlags[] = {
    {kShared, "--allow-client-shm", "boolean", "Clients may register shared memory. Default: true.",
     NEREID_BOOL(allow_client_shm)},

    {kHttp, "--allow-http", "boolean", "Default: true.", NEREID_BOOL(allow_http)},
    {kHttp, "--http-address", "address", "Default: 0.0.0.0.", NEREID_TEXT(http.address)},
    {kHttp, "--http-port", "integer", "Default: 8000.",
     &ApplyPort<&Options::http, &Options::http_port_fault>},
    {kHttp, "--reuse-http-port", "boolean", "Share the port with other processes. Default: false.",
     NEREID_BOOL(http.reuse_port)},
    {kHttp, "--http-thread-count", "integer", "Event loops. Default: one a core, at most 8.",
     NEREID_INT(http.num_threads, 1, 1024)},
    {kHttp, "--http-max-input-size", "integer", "Bytes of a request body. Default: 67108864.",
     NEREID_INT(http.limits.max_body_bytes, 1, INT64_MAX)},
    {kHttp, "--http-header-forward-pattern", "pattern",
     "Headers whose names match become parameters of requests.",
     NEREID_TEXT(kserve.header_forward_pattern)},
    {kHttp, "--http-restricted-api", "groups:key=value",
     "Groups of endpoints that need the header <key> with this value. Repeatable.",
     [](Options& o, Text text) { return o.kserve.restricted.Add(text); }},
    {kHttp, "--http-use-ssl", "boolean", "Speak TLS (https) on the HTTP port. Default: false.",
     NEREID_BOOL(use_http_tls)},
    {kHttp, "--http-use-ssl-mutual", "boolean", "Clients show a certificate too. Default: false.",
     &ApplyMutualTls<&Options::http_tls, &Options::use_http_tls>},
    {kHttp, "--http-server-cert", "path", "PEM.", NEREID_TEXT(http_tls.server_cert_path)},
    {kHttp, "--http-server-key", "path", "PEM.", NEREID_TEXT(http_tls.server_key_path)},
    {kHttp, "--http-root-cert", "path", "PEM: who signs the clients' certificates.",
     NEREID_TEXT(http_tls.root_cert_path)},
    {kHttp, "--http-max-connections", "integer", "Open at a time. Default: 16384.",
     NEREID_INT(http.limits.max_connections, 1, INT32_MAX)},
    {kHttp, "--http-max-header-size", "integer", "Bytes of a request's head. Default: 65536.",
     NEREID_INT(http.limits.max_head_bytes, 1024, INT32_MAX)},
    {kHttp, "--http-max-headers", "integer", "Header lines of a request. Default: 128.",
     NEREID_INT(http.limits.max_headers, 1, 65536)},
    {kHttp, "--http-max-json-depth", "integer", "Nesting of a JSON body. Default: 64.",
     NEREID_INT(http.limits.max_json_depth, 4, 1000)},
    {kHttp, "--http-max-unsent-size", "integer",
     "Bytes of a stream that its client has not read; beyond that it is dropped. "
     "Default: 16777216.",
     NEREID_INT(http.limits.max_unsent_bytes, 1, INT64_MAX)},
    {kHttp, "--http-idle-timeout-secs", "integer",
     "Until a connection without a request is closed. Default: 600.",
     NEREID_INT(http.limits.idle_timeout_s, 1, INT32_MAX)},
    {kHttp, "--http-read-timeout-secs", "integer",
     "Until a client that stalls within its request is dropped. Default: 60.",
     NEREID_INT(http.limits.read_timeout_s, 1, INT32_MAX)},
    {kHttp, "--http-write-timeout-secs", "integer",
     "Until a client that does not read its answer is dropped. Default: 60.",
     NEREID_INT(http.limits.write_timeout_s, 1, INT32_MAX)},

    {kGrpc, "--allow-grpc", "boolean", "Default: true.", NEREID_BOOL(allow_grpc)},
    {kGrpc, "--grpc-address", "address", "Default: 0.0.0.0.", NEREID_TEXT(grpc.address)},
    {kGrpc, "--grpc-port", "integer", "Default: 8001.",
     &ApplyPort<&Options::grpc, &Options::grpc_port_fault>},
    {kGrpc, "--reuse-grpc-port", "boolean", "Default: false.", NEREID_BOOL(grpc.is_port_reused)},
    {kGrpc, kGrpcInferThreads, "integer", "Accepted; calls need no threads of their own.",
     &NoEffect<kGrpcInferThreads>},
    {kGrpc, kGrpcAllocationPool, "integer", "Accepted; without effect.",
     &NoEffect<kGrpcAllocationPool>},
    {kGrpc, kGrpcResponsePool, "integer", "Accepted; without effect.",
     &NoEffect<kGrpcResponsePool>},
    {kGrpc, "--grpc-max-message-size", "integer", "Bytes of a request. Default: 2147483647.",
     NEREID_INT(grpc.max_message_bytes, 1, INT32_MAX)},
    {kGrpc, "--grpc-max-streams", "integer",
     "Calls open at a time on a connection. Default: 0, no limit.",
     NEREID_INT(grpc.max_streams_per_connection, 0, INT32_MAX)},
    {kGrpc, "--grpc-max-requests-per-stream", "integer",
     "In flight at a time; further ones are left unread. Default: 1024.",
     NEREID_INT(grpc.max_requests_per_stream, 1, INT32_MAX)},
    {kGrpc, "--grpc-max-unsent-size", "integer",
     "Bytes of a stream that its client has not read; beyond that it is dropped. "
     "Default: 67108864.",
     NEREID_INT(grpc.max_unsent_bytes_per_stream, 1, INT64_MAX)},
    {kGrpc, "--grpc-write-timeout", "ms",
     "Until an answer of which its client takes nothing is dropped, or twice as long. "
     "Default: 60000.",
     NEREID_INT(grpc.write_timeout_ms, 1, 86'400'000)},
    {kGrpc, "--grpc-header-forward-pattern", "pattern",
     "Headers whose names match become parameters of requests.",
     NEREID_TEXT(grpc.header_forward_pattern)},
    {kGrpc, "--grpc-restricted-protocol", "groups:key=value",
     "Groups of calls that need the header triton-grpc-protocol-<key> with this value. Repeatable.",
     [](Options& o, Text text) { return o.grpc.restricted.Add(text); }},
    {kGrpc, "--grpc-use-ssl", "boolean", "Default: false.", NEREID_BOOL(use_grpc_tls)},
    {kGrpc, "--grpc-use-ssl-mutual", "boolean", "Clients show a certificate too. Default: false.",
     &ApplyMutualTls<&Options::grpc_tls, &Options::use_grpc_tls>},
    {kGrpc, "--grpc-server-cert", "path", "PEM.", NEREID_TEXT(grpc_tls.server_cert_path)},
    {kGrpc, "--grpc-server-key", "path", "PEM.", NEREID_TEXT(grpc_tls.server_key_path)},
    {kGrpc, "--grpc-root-cert", "path", "PEM.", NEREID_TEXT(grpc_tls.root_cert_path)},
    {kGrpc, "--grpc-infer-response-compression-level", "none|low|medium|high", "Default: none.",
     &ApplyCompression},
    {kGrpc, "--grpc-keepalive-time", "ms", "Default: 7200000.",
     NEREID_INT(grpc.keepalive.time_ms, 0, INT64_MAX)},
    {kGrpc, "--grpc-keepalive-timeout", "ms", "Default: 20000.",
     NEREID_INT(grpc.keepalive.timeout_ms, 0, INT64_MAX)},
    {kGrpc, "--grpc-keepalive-permit-without-calls", "boolean", "Default: false.",
     NEREID_BOOL(grpc.keepalive.permit_without_calls)},
    {kGrpc, "--grpc-http2-max-pings-without-data", "integer", "Default: 2.",
     NEREID_INT(grpc.keepalive.max_pings_without_data, 0, INT32_MAX)},
    {kGrpc, "--grpc-http2-min-recv-ping-interval-without-data", "ms", "Default: 300000.",
     NEREID_INT(grpc.keepalive.min_recv_ping_interval_without_data_ms, 0, INT64_MAX)},
    {kGrpc, "--grpc-http2-max-ping-strikes", "integer", "Default: 2.",
     NEREID_INT(grpc.keepalive.max_ping_strikes, 0, INT32_MAX)},
    {kGrpc, "--grpc-max-connection-age", "ms", "Default: 0, none.",
     NEREID_INT(grpc.keepalive.max_connection_age_ms, 0, INT64_MAX)},
    {kGrpc, "--grpc-max-connection-age-grace", "ms", "Default: 0, none.",
     NEREID_INT(grpc.keepalive.max_connection_age_grace_ms, 0, INT64_MAX)},

    {kMetrics, "--allow-metrics", "boolean", "Default: true.", NEREID_BOOL(allow_metrics)},
    {kMetrics, "--metrics-address", "address", "Default: that of HTTP.", &ApplyMetricsAddress},
    {kMetrics, "--metrics-port", "integer", "Default: 8002.",
     &ApplyPort<&Options::metrics, &Options::metrics_port_fault>},
    {kMetrics, "--allow-gpu-metrics", "boolean", "Default: true.",
     &ApplyMetricsBool<TRITONSERVER_ServerOptionsSetGpuMetrics>},
    {kMetrics, "--allow-cpu-metrics", "boolean", "Default: true.",
     &ApplyMetricsBool<TRITONSERVER_ServerOptionsSetCpuMetrics>},
    {kMetrics, "--metrics-interval-ms", "integer",
     "CPU, GPUs and pinned memory are read at most as often. Default: 2000.",
     &ApplyMetricsInterval},
    {kMetrics, "--metrics-config", "[name,]key=value",
     "counter_latencies, histogram_latencies, summary_latencies, summary_quantiles.",
     &ApplyMetricsConfig},

    {kLog, "--log-verbose", "integer", "0 is none. Default: 0.", &ApplyLogVerbose},
    {kLog, "--log-info", "boolean", "Default: true.",
     &ApplyLogBool<TRITONSERVER_ServerOptionsSetLogInfo, &Options::log_info>},
    {kLog, "--log-warning", "boolean", "Default: true.",
     &ApplyLogBool<TRITONSERVER_ServerOptionsSetLogWarn, &Options::log_warning>},
    {kLog, "--log-error", "boolean", "Default: true.",
     &ApplyLogBool<TRITONSERVER_ServerOptionsSetLogError, &Options::log_error>},
    {kLog, "--log-format", "default|ISO8601|json", "json: an object a line. Default: default.",
     &ApplyLogFormat},
    {kLog, "--log-file", "path", "Default: standard error.", &ApplyLogFile},

    {kTrace, "--trace-config", "[mode,]key=value",
     "mode=triton|opentelemetry, level, rate, count; triton,file and log-frequency; "
     "opentelemetry,url, resource and bsp_*.",
     &ApplyTraceConfig},
    {kTrace, "--trace-file", "path", "Older form of triton,file.", &ApplyTraceAs<kTraceFile>},
    {kTrace, "--trace-level", "level", "Older form of level.", &ApplyTraceAs<kTraceLevel>},
    {kTrace, "--trace-rate", "integer", "Older form of rate.", &ApplyTraceAs<kTraceRate>},
    {kTrace, "--trace-count", "integer", "Older form of count.", &ApplyTraceAs<kTraceCount>},
    {kTrace, "--trace-log-frequency", "integer", "Older form of triton,log-frequency.",
     &ApplyTraceAs<kTraceLogFrequency>},

    {kSageMaker, "--allow-sagemaker", "boolean",
     "The routes /ping, /invocations and /models on a port of their own. Default: false.",
     NEREID_BOOL(allow_sagemaker)},
    {kSageMaker, "--sagemaker-port", "integer", "Default: 8080.",
     NEREID_INT(sagemaker.port, 0, 65535)},
    {kSageMaker, "--sagemaker-safe-port-range", "first-last",
     "The ports of HTTP, gRPC and metrics must lie within.", &ApplySafePortRange},
    {kSageMaker, "--sagemaker-thread-count", "integer",
     "Event loops. Default: one a core, at most 8.", NEREID_INT(sagemaker.num_threads, 1, 1024)},
    {kVertexAi, "--allow-vertex-ai", "boolean",
     "The routes that AIP_PREDICT_ROUTE and AIP_HEALTH_ROUTE name, on a port of their own. "
     "Default: "
     "true where AIP_MODE is PREDICTION, which also makes the default of HTTP and gRPC false.",
     NEREID_BOOL(allow_vertex_ai)},
    {kVertexAi, "--vertex-ai-port", "integer", "Default: AIP_HTTP_PORT, else 8080.",
     NEREID_INT(vertex_ai.port, 0, 65535)},
    {kVertexAi, "--vertex-ai-thread-count", "integer",
     "Event loops. Default: one a core, at most 8.", NEREID_INT(vertex_ai.num_threads, 1, 1024)},
    {kVertexAi, "--vertex-ai-default-model", "name",
     "The model of predictions. Default: the only one there is.",
     NEREID_TEXT(vertex_ai_routes.default_model)},
};

#undef NEREID_BOOL
#undef NEREID_TEXT
#undef NEREID_INT

}  // namespace

std::span<const Flag> FrontendFlags() {
  return kFlags;
}

}  // namespace nereid
