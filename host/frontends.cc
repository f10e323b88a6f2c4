// The log lines are Triton's, because scripts wait for them.
#include "host/frontends.h"

#include <algorithm>
#include <thread>

#include "base/memory_limit.h"
#include "host/frontend/cloud/sagemaker_service.h"
#include "host/frontend/cloud/vertex_ai_service.h"
#include "host/frontend/openai/openai_service.h"
#include "host/log.h"
#include "net/listener.h"

namespace nereid {
namespace {

LogValues ToLogValues(const Options& options) {
  return {options.log_file,  options.log_info,    options.log_warning,
          options.log_error, options.log_verbose, options.log_format};
}

// Adds the text that Triton logs, because scripts look for it.
Status AddStartContext(const char* service, Status status) {
  if (status.ok()) return status;
  const char* const code = status.code() == StatusCode::kUnavailable ? "Unavailable - " : "";
  return {status.code(), StrCat("failed to start ", service, " service: ", code, status.message())};
}

// "But over HTTP only clients with their secrets may call the groups trace, logging." Empty if no
// group of the protocol is restricted.
std::string RestrictionsOf(const RestrictedApis& restricted, const char* protocol) {
  std::string groups;
  for (const std::string_view name : restricted.GroupNames()) {
    groups += StrCat(groups.empty() ? "" : ", ", name);
  }
  if (groups.empty()) return "";
  return StrCat(" But over ", protocol, " only clients with their secrets may call the groups ",
                groups, ".");
}

// For the log line at the start.
std::string WhoMayDoWhat(const Options& options) {
  const AccessPolicy& access = options.access;
  std::string changes = StrCat("change log and trace settings",
                               access.allows_client_shm ? ", register shared memory" : "");
  if (options.control_mode == TRITONSERVER_MODEL_CONTROL_EXPLICIT) {
    changes += StrCat(", load and unload models",
                      access.allows_inline_models ? ", also with code in the request" : "");
  }
  std::string restrictions;
  if (options.allow_http || options.allow_sagemaker || options.allow_vertex_ai) {
    restrictions += RestrictionsOf(options.kserve.restricted, "HTTP");
  }
  if (options.allow_grpc) restrictions += RestrictionsOf(options.grpc.restricted, "gRPC");
  if (!options.api_key_file.empty()) {
    return StrCat("Every request but the server's health needs an API key; keys may permit to ",
                  changes, ".", restrictions);
  }
  return StrCat("Every client may infer; ",
                access.allows_remote_admin ? "every client may " : "local clients may ", changes,
                ".", restrictions);
}

Status CheckPort(const char* service, const net::ListenAddress& address, const char* flag) {
  // A path belongs to whoever opens it last.
  if (address.port == 0 || address.host.starts_with("unix:")) return Status::Ok();
  const Status opened = net::Listener::Open(address).status();
  if (opened.ok()) return opened;
  return AddStartContext(service, Status(opened.code(), StrCat(opened.message(), "; ", flag,
                                                               " chooses another port")));
}

AccessPolicy AccessOf(const Options& options) {
  AccessPolicy access = options.access;
  access.trusts_own_pages = options.openai.console.value_or(false);
  return access;
}

}  // namespace

Frontends::Frontends(const Server& server, const Options& options)
    : server_(server),
      state_{AccessOf(options),
             LogSettings(ToLogValues(options)),
             SharedMemoryManager(options.access.allows_client_shm, options.client_shm_limits),
             nullptr,
             RequestMemory(options.max_request_memory_bytes.value_or(MemoryLimitBytes() / 2)),
             nullptr} {
  ByteBudget& memory = state_.request_memory.budget();
  const net::ClientLimits limits{options.max_client_connections,
                                 options.max_client_memory_bytes.value_or(memory.max_bytes() / 2)};
  state_.clients = std::make_unique<net::ClientTable>(&memory, limits);
}

// Requests that wait for a model are answered on the loops of the servers.
Frontends::~Frontends() {
  if (demand_ != nullptr) demand_->Stop();
}

Status Frontends::CheckPorts(const Options& options) {
  const auto check = [](bool is_open, const char* service, const http::HttpServerOptions& port,
                        const char* flag) {
    if (!is_open) return Status::Ok();
    return CheckPort(service, {port.address, port.port, port.reuse_port}, flag);
  };
  if (options.allow_grpc) {
    const GrpcOptions& grpc = options.grpc;
    NEREID_RETURN_IF_ERROR(CheckPort(
        "GRPC", {grpc.address, grpc.port, grpc.is_port_reused, /*any_is_both_families=*/true},
        "--grpc-port"));
  }
  NEREID_RETURN_IF_ERROR(check(options.allow_http, "HTTP", options.http, "--http-port"));
  NEREID_RETURN_IF_ERROR(
      check(options.allow_sagemaker, "Sagemaker", options.sagemaker, "--sagemaker-port"));
  NEREID_RETURN_IF_ERROR(
      check(options.allow_vertex_ai, "Vertex AI", options.vertex_ai, "--vertex-ai-port"));
  return check(options.allow_metrics, "Metrics", options.metrics, "--metrics-port");
}

Result<std::unique_ptr<Frontends>> Frontends::Start(const Server& server, const Options& options) {
  std::unique_ptr<Frontends> frontends(new Frontends(server, options));
  // The log comes first: what is logged of the other files is then in the new one.
  frontends->ReopenLogOnHangup(options.log_file);
  NEREID_RETURN_IF_ERROR(frontends->ReadApiKeys(options.api_key_file));
  NEREID_ASSIGN_OR_RETURN(frontends->state_.tracer, Tracer::Create(options.trace));
  if (!options.openai.access_log.empty()) {
    NEREID_ASSIGN_OR_RETURN(frontends->access_log_,
                            openai::AccessLog::Open(options.openai.access_log));
    frontends->reload_.Add("access log", {},
                           [log = frontends->access_log_.get()] { return log->Reopen(); });
  }
  if (!options.demand.models.empty()) {
    frontends->demand_ = std::make_unique<ModelDemand>(options.demand, ControlOf(server));
  }
  if (options.allow_grpc) {
    NEREID_RETURN_IF_ERROR(AddStartContext("GRPC", frontends->StartGrpc(options)));
  }
  if (options.allow_http) {
    NEREID_RETURN_IF_ERROR(AddStartContext("HTTP", frontends->StartHttp(options)));
  }
  if (options.allow_sagemaker) {
    NEREID_RETURN_IF_ERROR(AddStartContext("Sagemaker", frontends->StartSageMaker(options)));
  }
  if (options.allow_vertex_ai) {
    NEREID_RETURN_IF_ERROR(AddStartContext("Vertex AI", frontends->StartVertexAi(options)));
  }
  if (options.allow_metrics) {
    NEREID_RETURN_IF_ERROR(AddStartContext("Metrics", frontends->StartMetrics(options)));
  }
  frontends->LogOpenPorts(options);
  frontends->reload_.Start();
  return frontends;
}

// A program that rotates logs renames the file and sends SIGHUP.
void Frontends::ReopenLogOnHangup(const std::string& path) {
  if (path.empty()) return;
  reload_.Add("log file", {}, [path] {
    return ToStatus(TRITONSERVER_ServerOptionsSetLogFile(nullptr, path.c_str()));
  });
}

Status Frontends::ReadApiKeys(const std::string& path) {
  if (path.empty()) return Status::Ok();
  reload_.Add("API keys", {path}, [this] { return api_keys_->Reload(); });
  NEREID_ASSIGN_OR_RETURN(api_keys_, ApiKeyFile::Open(path));
  state_.access.keys = api_keys_;
  return Status::Ok();
}

// One line that tells an operator what untrusted clients can reach and do.
void Frontends::LogOpenPorts(const Options& options) const {
  std::string ports;
  const auto add_port = [&](std::string_view name, const std::string& address, int port) {
    ports += StrCat(ports.empty() ? "" : ", ", name, " ", address);
    if (!address.starts_with("unix:")) ports += StrCat(":", port);
  };
  for (const HttpPort& port : http_ports_)
    add_port(port.protocol, port.address, port.server->port());
  if (grpc_ != nullptr) add_port("gRPC", options.grpc.address, grpc_->port());
  if (metrics_ != nullptr) add_port("metrics", options.metrics.address, metrics_->port());
  LogInfo("Open to clients: ", ports.empty() ? "no port" : ports, ". ", WhoMayDoWhat(options));
}

Status Frontends::StartGrpc(const Options& options) {
  GrpcOptions grpc = options.grpc;
  grpc.state = &state_;
  grpc.demand = demand_.get();
  grpc.budget = &state_.request_memory.budget();
  grpc.clients = state_.clients.get();
  grpc.max_connection_memory_bytes =
      options.grpc_max_connection_memory_bytes.value_or(grpc.budget->max_bytes() / 2);
  if (grpc.tls) {
    reload_.Add("TLS files of gRPC", grpc.tls->paths(), [this] { return grpc_->ReloadTls(); });
  }
  NEREID_ASSIGN_OR_RETURN(grpc_, GrpcServer::Start(server_, grpc));
  LogInfo("Started GRPCInferenceService at ", options.grpc.address, ":", grpc_->port());
  return Status::Ok();
}

Status Frontends::Listen(std::unique_ptr<http::HttpService> service, http::KServeService* kserve,
                         http::HttpServerOptions config, const char* protocol) {
  config.limits.budget = &state_.request_memory.budget();
  config.limits.clients = state_.clients.get();
  if (config.tls) {
    reload_.Add("TLS files of HTTP", config.tls->paths(), [this, index = http_ports_.size()] {
      return http_ports_[index].server->ReloadTls();
    });
  }
  NEREID_ASSIGN_OR_RETURN(auto server, http::HttpServer::Start(config, *service));
  LogInfo("Started ", protocol, "Service at ", config.address, ":", server->port());
  http_ports_.push_back({std::move(service), kserve, std::move(server), protocol, config.address});
  return Status::Ok();
}

Status Frontends::StartHttp(const Options& options) {
  NEREID_ASSIGN_OR_RETURN(auto service,
                          http::KServeService::Create(server_, state_, options.kserve));
  http::KServeService* const kserve = service.get();
  openai::OpenAiOptions openai_options = options.openai;
  openai_options.serves_metrics = options.allow_metrics && (options.openai.serves_metrics ||
                                                            options.openai.console.value_or(false));
  auto openai = std::make_unique<openai::OpenAiService>(
      std::move(service), openai_options, openai::IsLocalAddress(options.http.address),
      options.program == Program::kNereid, demand_.get(), access_log_.get());
  return Listen(std::move(openai), kserve, options.http, "HTTP");
}

Status Frontends::StartSageMaker(const Options& options) {
  NEREID_ASSIGN_OR_RETURN(
      auto service,
      http::SageMakerService::Create(server_, state_, options.kserve, options.sagemaker_routes));
  http::KServeService* const kserve = &service->kserve();
  return Listen(std::move(service), kserve, options.sagemaker, "Sagemaker HTTP");
}

Status Frontends::StartVertexAi(const Options& options) {
  NEREID_ASSIGN_OR_RETURN(
      auto service,
      http::VertexAiService::Create(server_, state_, options.kserve, options.vertex_ai_routes));
  http::KServeService* const kserve = &service->kserve();
  return Listen(std::move(service), kserve, options.vertex_ai, "Vertex AI HTTP");
}

Status Frontends::StartMetrics(const Options& options) {
  metrics_service_ = std::make_unique<http::MetricsService>(server_, state_);
  NEREID_ASSIGN_OR_RETURN(metrics_, http::HttpServer::Start(options.metrics, *metrics_service_));
  LogInfo("Started Metrics Service at ", options.metrics.address, ":", metrics_->port());
  return Status::Ok();
}

void Frontends::DrainHttp(Clock::time_point deadline) {
  for (const HttpPort& port : http_ports_) {
    port.kserve->BeginDrain();
    port.server->BeginDrain();
  }
  for (const HttpPort& port : http_ports_) WaitForClients(port, deadline);
}

// Waits until all clients are gone, and logs once a second that it waits. The first 20 ms are not
// logged, because connections take a moment to close.
void Frontends::WaitForClients(const HttpPort& port, Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kPollPause(1);
  Clock::time_point report = Clock::now() + 20 * kPollPause;
  while (true) {
    // Read in this order: a connection that closes in between then causes no underflow.
    const size_t num_kept_open = port.server->num_kept_open();
    const size_t num_open = port.server->num_connections();
    const Clock::time_point now = Clock::now();
    if (num_open <= num_kept_open || now >= deadline) return;
    if (now >= report) {
      report += std::chrono::seconds(1);
      LogInfo("Timeout ", std::chrono::ceil<std::chrono::seconds>(deadline - now).count(),
              ": Found ", num_open - num_kept_open, " ", port.protocol, " service connections");
    }
    std::this_thread::sleep_for(kPollPause);
  }
}

size_t Frontends::End(Clock::time_point deadline) {
  // Even at the deadline, connections without requests take a moment to close.
  constexpr std::chrono::milliseconds kMinWait(200);
  deadline = std::max(deadline, Clock::now() + kMinWait);
  size_t num_cut = 0;
  const auto report = [&num_cut](size_t num_calls, const char* protocol) {
    if (num_calls == 0) return;
    LogWarning("exit timeout: cancelling ", num_calls, " ", protocol, " requests");
    num_cut += num_calls;
  };
  if (grpc_ != nullptr) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    report(grpc_->Stop(std::max(left, std::chrono::milliseconds(0))), "GRPC");
  }
  for (const HttpPort& port : http_ports_) {
    port.server->EndDrain();
    if (!port.server->WaitUntilIdle(deadline)) report(port.server->num_running(), port.protocol);
    port.server->CloseConnections();
  }
  return num_cut;
}

}  // namespace nereid
