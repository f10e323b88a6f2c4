// The lines that it logs are Triton's: scripts wait for them.
#include "host/frontends.h"

#include <algorithm>

#include "host/log.h"

namespace nereid {
namespace {

LogValues ToLogValues(const Options& options) {
  return {options.log_file,  options.log_info,    options.log_warning,
          options.log_error, options.log_verbose, options.log_format};
}

}  // namespace

Frontends::Frontends(const Server& server, const Options& options)
    : server_(server),
      state_{LogSettings(ToLogValues(options)), SharedMemory(options.allow_client_shm), nullptr} {}

Result<std::unique_ptr<Frontends>> Frontends::Start(const Server& server, const Options& options) {
  std::unique_ptr<Frontends> frontends(new Frontends(server, options));
  NEREID_ASSIGN_OR_RETURN(frontends->state_.tracer, Tracer::Create(options.trace));
  if (options.allow_grpc) NEREID_RETURN_IF_ERROR(frontends->StartGrpc(options));
  if (options.allow_http) NEREID_RETURN_IF_ERROR(frontends->StartHttp(options));
  if (options.allow_metrics) NEREID_RETURN_IF_ERROR(frontends->StartMetrics(options));
  return frontends;
}

Status Frontends::StartGrpc(const Options& options) {
  GrpcOptions grpc = options.grpc;
  grpc.state = &state_;
  NEREID_ASSIGN_OR_RETURN(grpc_, GrpcServer::Start(server_, grpc));
  LogInfo("Started GRPCInferenceService at ", options.grpc.address, ":", grpc_->port());
  return Status::Ok();
}

Status Frontends::StartHttp(const Options& options) {
  NEREID_ASSIGN_OR_RETURN(http_service_,
                          http::KServeService::Create(server_, state_, options.kserve));
  NEREID_ASSIGN_OR_RETURN(http_, http::HttpServer::Start(options.http, *http_service_));
  LogInfo("Started HTTPService at ", options.http.address, ":", http_->port());
  return Status::Ok();
}

Status Frontends::StartMetrics(const Options& options) {
  metrics_service_ = std::make_unique<http::MetricsService>(server_);
  NEREID_ASSIGN_OR_RETURN(metrics_, http::HttpServer::Start(options.metrics, *metrics_service_));
  LogInfo("Started Metrics Service at ", options.metrics.address, ":", metrics_->port());
  return Status::Ok();
}

void Frontends::Drain(std::chrono::steady_clock::time_point deadline) {
  if (http_ != nullptr) {
    http_service_->BeginDrain();
    http_->BeginDrain();
  }
  if (grpc_ != nullptr) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    grpc_->Stop(std::max(left, std::chrono::milliseconds(0)));
  }
  if (http_ == nullptr) return;
  if (!http_->WaitUntilIdle(deadline)) {
    LogWarning("exit timeout: cancelling what runs on ", http_->num_connections(),
               " HTTP connections");
  }
  http_->CloseConnections();
}

}  // namespace nereid
