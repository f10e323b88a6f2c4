// Parsed command-line options, from which main.cc starts the server. The flags are Triton's; each
// is one entry of the tables in option_table_core.cc and option_table_frontend.cc, which also
// produce the help text. [main thread]
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/frontend/access_control.h"
#include "host/frontend/cloud/cloud_options.h"
#include "host/frontend/grpc/grpc_options.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/transport/http_server.h"
#include "host/frontend/model_demand.h"
#include "host/frontend/openai/origin_policy.h"
#include "host/frontend/shared_memory.h"
#include "host/frontend/tracing/tracer.h"
#include "nereid/server.h"
#include "nereid/status.h"

namespace nereid {

struct PortRange {
  int first = 0;
  int last = 0;  // inclusive
};

// The name under which the program runs. It decides the defaults of the options: kNereid's suit a
// server that untrusted clients can reach, kTriton's are those of the program tritonserver.
enum class Program { kNereid, kTriton };

// `path` is the first element of the argument vector; every name but tritonserver is kNereid.
Program ProgramOf(std::string_view path);

struct Options {
  Program program = Program::kNereid;
  bool show_help = false;

  // ---- the core
  std::vector<std::string> repositories;
  std::string backend_directory;  // empty: <executable's folder>/../backends
  std::string cache_directory;    // empty: <executable's folder>/../caches
  std::string repoagent_directory;
  TRITONSERVER_ModelControlMode control_mode = TRITONSERVER_MODEL_CONTROL_NONE;
  int64_t repository_poll_s = 15;  // 0 or less: never
  std::vector<std::string> startup_models;
  bool strict_model_config = false;
  bool has_strict_model_config = false;  // --strict-model-config was given
  bool disable_auto_complete = false;    // sets strict_model_config, overriding its own flag
  std::map<std::string, std::map<std::string, std::string>> cache_settings;
  int64_t old_cache_size = 0;  // of --response-cache-byte-size
  bool exit_on_error = true;   // a copy of the core's setting
  int64_t exit_timeout_s = 30;
  // The core's limit until a load is stalled; nullopt: its default.
  std::optional<int64_t> model_load_wait_s;
  // Limit of SpinWait in the core and the frontends; nullopt: its default.
  std::optional<int64_t> spin_us;
  // Settings that only the core interprets, in command-line order.
  std::vector<std::function<Status(ServerOptions&)>> core_settings;

  // ---- frontends
  std::string host;  // --host; afterwards the address of the ports that no flag has given one
  AccessPolicy access;
  SharedMemoryLimits client_shm_limits;
  // Of bodies and messages in flight; 0: no limit. nullopt: half of the memory.
  std::optional<size_t> max_request_memory_bytes;
  std::optional<size_t> grpc_max_connection_memory_bytes;  // none: half of the above
  // Of one client that is not local; 0: no limit.
  std::optional<size_t> max_client_memory_bytes;  // none: half of max_request_memory_bytes
  size_t max_client_connections = 8192;           // over HTTP and gRPC together
  std::string api_key_file;                       // empty: no keys
  TraceOptions trace;
  ModelDemandOptions demand;  // of `nereid serve`
  bool allow_http = true;
  http::HttpServerOptions http;
  net::TlsOptions http_tls{.flag_prefix = "--http"};
  std::optional<bool> use_http_tls;  // nullopt: no flag says so, which means false
  http::KServeOptions kserve;
  openai::OpenAiOptions openai;
  bool allow_grpc = true;
  GrpcOptions grpc;
  net::TlsOptions grpc_tls{.flag_prefix = "--grpc"};
  std::optional<bool> use_grpc_tls;
  bool allow_sagemaker = false;
  http::HttpServerOptions sagemaker;
  http::SageMakerOptions sagemaker_routes;
  std::optional<PortRange> sagemaker_safe_ports;
  bool allow_vertex_ai = false;
  http::HttpServerOptions vertex_ai;
  http::VertexAiOptions vertex_ai_routes;
  bool allow_metrics = true;
  http::HttpServerOptions metrics;
  bool has_http_address = false;
  bool has_grpc_address = false;
  bool has_metrics_address = false;
  // Errors of the port flags, reported only if the port is enabled.
  Status http_port_error, grpc_port_error, metrics_port_error;

  // ---- log settings, as reported by the frontends
  std::string log_file;
  bool log_info = true;
  bool log_warning = true;
  bool log_error = true;
  uint32_t log_verbose = 0;
  std::string log_format;  // value of --log-format, else NEREID_LOG_FORMAT, else default

  // Flags that were given but have no effect in this server.
  std::vector<std::string> ineffective_flags;
  // Warnings about flags that are deprecated or have no effect, for standard error.
  std::vector<std::string> warnings;
};

// `args` excludes the program's name. Values may follow as "--flag value" or "--flag=value".
Result<Options> ParseOptions(const std::vector<std::string>& args,
                             Program program = Program::kNereid);

// Whether the flag `name`, which may be abbreviated, takes its value from the next argument if none
// follows an equals sign. INVALID_ARG for an unknown flag.
Result<bool> TakesNextArgument(std::string_view name);

// The names of all flags, including the dashes.
std::vector<std::string> FlagNames();

std::string UsageText(std::string_view program);

}  // namespace nereid
