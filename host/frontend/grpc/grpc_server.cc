// See grpc_server.h.
#include "host/frontend/grpc/grpc_server.h"

#include <optional>

#include "host/frontend/grpc/health_service.h"
#include "host/frontend/grpc/inference_service.h"
#include "host/frontend/grpc/reflection_service.h"
#include "host/frontend/grpc/transport/http2_server.h"

namespace nereid {
namespace {

constexpr size_t kMaxPendingControlCalls = 256;

}  // namespace

// Members in order of construction; destroyed in reverse.
struct GrpcServer::Impl {
  std::unique_ptr<InferContext> context;
  std::optional<WorkQueue> control_queue;
  std::optional<InferenceService> service;
  std::optional<HealthService> health;
  MethodTable methods;
  std::unique_ptr<grpc::Http2Server> server;

  size_t Stop(std::chrono::milliseconds timeout) {
    if (server == nullptr) return 0;
    context->drainable_calls().EndAllWhenIdle();
    const size_t num_cancelled = server->Stop(timeout);
    control_queue->Close();
    return num_cancelled;
  }
};

Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Server& server, GrpcOptions options) {
  auto impl = std::make_unique<Impl>();
  NEREID_ASSIGN_OR_RETURN(impl->context, InferContext::Create(server, options));
  const InferContext& context = *impl->context;
  impl->control_queue.emplace(options.control_thread_count, kMaxPendingControlCalls);
  impl->service.emplace(context, *impl->control_queue);
  impl->health.emplace(server, context.drainable_calls(), context.access());
  impl->service->AddTo(impl->methods);
  impl->health->AddTo(impl->methods);
  AddReflection(context.access(), context.drainable_calls(), impl->methods);
  NEREID_ASSIGN_OR_RETURN(impl->server, grpc::Http2Server::Start(context.options(), impl->methods));
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GrpcServer::~GrpcServer() {
  impl_->Stop(std::chrono::milliseconds(0));
}

uint16_t GrpcServer::port() const {
  return impl_->server->port();
}

Status GrpcServer::ReloadTls() {
  return impl_->server->ReloadTls();
}

size_t GrpcServer::num_calls() const {
  return impl_->control_queue->num_tasks() + impl_->server->num_calls();
}

size_t GrpcServer::Stop(std::chrono::milliseconds deadline) {
  return impl_->Stop(deadline);
}

}  // namespace nereid
