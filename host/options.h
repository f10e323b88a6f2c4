// The command line, understood: what main.cc wires the server from. Flags are Triton's; each is one
// row of the table in option_table.cc, which also makes the help text. [main thread]
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/frontend/cloud/cloud_options.h"
#include "host/frontend/grpc/grpc_options.h"
#include "host/frontend/http/kserve_options.h"
#include "host/frontend/http/transport/http_server.h"
#include "host/frontend/tracing/tracer.h"
#include "nereid/server_options.h"
#include "nereid/status.h"

namespace nereid {

struct PortRange {
  int first = 0;
  int last = 0;  // included
};

struct Options {
  bool show_help = false;

  // ---- the core
  std::vector<std::string> repositories;
  std::string backend_directory;  // empty: <executable's folder>/../backends
  std::string cache_directory;    // likewise ../caches
  std::string repoagent_directory;
  TRITONSERVER_ModelControlMode control_mode = TRITONSERVER_MODEL_CONTROL_NONE;
  int64_t repository_poll_s = 15;  // from 0 down: never
  std::vector<std::string> startup_models;
  bool strict_model_config = false;
  bool has_strict_model_config = false;  // it was given by that name
  bool disable_auto_complete = false;    // sets strict_model_config, whatever else says of it
  std::map<std::string, std::map<std::string, std::string>> cache_settings;
  int64_t old_cache_size = 0;  // of --response-cache-byte-size
  int64_t exit_timeout_s = 30;
  std::optional<int64_t> spin_us;  // of SpinWait, in the core and here; none: its own default
  // Settings that the core alone understands, in the order of the command line.
  std::vector<std::function<Status(ServerOptions&)>> core_settings;

  // ---- frontends
  bool allow_client_shm = true;
  TraceOptions trace;
  bool allow_http = true;
  http::ServerConfig http;
  TlsOptions http_tls{.flag_prefix = "--http"};
  bool use_http_tls = false;
  http::KServeOptions kserve;
  bool allow_grpc = true;
  GrpcOptions grpc;
  TlsOptions grpc_tls{.flag_prefix = "--grpc"};
  bool use_grpc_tls = false;
  bool allow_sagemaker = false;
  http::ServerConfig sagemaker;
  http::SageMakerOptions sagemaker_routes;
  std::optional<PortRange> sagemaker_safe_ports;
  bool allow_vertex_ai = false;
  http::ServerConfig vertex_ai;
  http::VertexAiOptions vertex_ai_routes;
  bool allow_metrics = true;
  http::ServerConfig metrics;
  bool has_metrics_address = false;
  Status http_port_fault, grpc_port_fault, metrics_port_fault;  // count where the port is opened

  // ---- the log, as the frontends report it
  std::string log_file;
  bool log_info = true;
  bool log_warning = true;
  bool log_error = true;
  uint32_t log_verbose = 0;
  std::string log_format;  // the flag's, else that of NEREID_LOG_FORMAT, else default

  // Flags that were given and change nothing here.
  std::vector<std::string> ineffective_flags;
  // Of flags of an older form, for standard error.
  std::vector<std::string> warnings;
};

// `args` excludes the program's name. Takes "--flag value" and "--flag=value".
Result<Options> ParseOptions(const std::vector<std::string>& args);

std::string UsageText(std::string_view program);

}  // namespace nereid
