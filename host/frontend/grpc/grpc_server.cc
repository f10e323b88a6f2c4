// See grpc_server.h.
#include "grpc_server.h"

#include <absl/synchronization/mutex.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "control_service.h"
#include "health_service.h"
#include "tls/tls_context.h"

namespace nereid {
namespace {

constexpr size_t kMaxPendingControlCalls = 256;

// The content of a file that was read once before.
Result<std::string> ReadPem(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file || content.view().empty()) return InvalidArgError("'", path, "': cannot be read");
  return std::move(content).str();
}

Result<std::shared_ptr<grpc::ServerCredentials>> MakeCredentials(const GrpcOptions& options) {
  if (!options.tls.has_value()) return grpc::InsecureServerCredentials();
  const TlsOptions& tls = *options.tls;
  // gRPC itself says of bad files only that it cannot listen.
  NEREID_RETURN_IF_ERROR(TlsContext::Create(tls).status());
  grpc::SslServerCredentialsOptions ssl(
      tls.is_mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                    : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  NEREID_ASSIGN_OR_RETURN(pair.cert_chain, ReadPem(tls.server_cert_path));
  NEREID_ASSIGN_OR_RETURN(pair.private_key, ReadPem(tls.server_key_path));
  ssl.pem_key_cert_pairs.push_back(std::move(pair));
  if (!tls.root_cert_path.empty()) {
    NEREID_ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadPem(tls.root_cert_path));
  }
  return grpc::SslServerCredentials(ssl);
}

int ToArgument(int64_t value) {
  return static_cast<int>(std::clamp<int64_t>(value, 0, std::numeric_limits<int>::max()));
}

void AddKeepalive(const GrpcKeepaliveOptions& keepalive, grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, ToArgument(keepalive.time_ms));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ToArgument(keepalive.timeout_ms));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS,
                             keepalive.permit_without_calls ? 1 : 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA,
                             keepalive.max_pings_without_data);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             ToArgument(keepalive.min_recv_ping_interval_without_data_ms));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, keepalive.max_ping_strikes);
  if (keepalive.max_connection_age_ms > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               ToArgument(keepalive.max_connection_age_ms));
  }
  if (keepalive.max_connection_age_grace_ms > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                               ToArgument(keepalive.max_connection_age_grace_ms));
  }
}

void AddLimits(const GrpcOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(ToArgument(static_cast<int64_t>(
      std::min<size_t>(options.max_message_bytes, std::numeric_limits<int>::max()))));
  builder.SetMaxSendMessageSize(std::numeric_limits<int>::max());
  if (options.max_streams_per_connection > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_streams_per_connection);
  }
}

void AddCompression(GrpcCompression compression, grpc::ServerBuilder& builder) {
  switch (compression) {
    case GrpcCompression::kNone:
      return;
    case GrpcCompression::kLow:
      return (void)builder.SetDefaultCompressionLevel(GRPC_COMPRESS_LEVEL_LOW);
    case GrpcCompression::kMedium:
      return (void)builder.SetDefaultCompressionLevel(GRPC_COMPRESS_LEVEL_MED);
    case GrpcCompression::kHigh:
      return (void)builder.SetDefaultCompressionLevel(GRPC_COMPRESS_LEVEL_HIGH);
  }
}

bool IsUnixSocket(const std::string& address) {
  return address.starts_with("unix:");
}

std::string Listener(const GrpcOptions& options) {
  if (IsUnixSocket(options.address)) return options.address;
  const bool is_ipv6 = options.address.find(':') != std::string::npos;
  return is_ipv6 ? StrCat("[", options.address, "]:", options.port)
                 : StrCat(options.address, ":", options.port);
}

}  // namespace

// In order of wiring; torn down in reverse.
struct GrpcServer::Impl {
  std::unique_ptr<InferContext> context;
  std::optional<WorkQueue> control_queue;
  std::optional<ControlService> service;
  std::optional<HealthService> health;
  std::unique_ptr<grpc::Server> server;
  int port = 0;

  void Stop(std::chrono::milliseconds deadline) {
    if (server == nullptr) return;
    context->long_calls().EndAllWhenIdle();
    server->Shutdown(std::chrono::system_clock::now() + deadline);
    server->Wait();
    server.reset();
    control_queue->Close();
  }
};

Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Server& server, GrpcOptions options) {
  // Debian's abseil checks every lock for cycles unless told otherwise: 5 % of a small request.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  auto impl = std::make_unique<Impl>();
  NEREID_ASSIGN_OR_RETURN(impl->context, InferContext::Create(server, options));
  NEREID_ASSIGN_OR_RETURN(auto credentials, MakeCredentials(options));
  impl->control_queue.emplace(options.control_thread_count, kMaxPendingControlCalls);
  impl->service.emplace(*impl->context, *impl->control_queue);
  impl->health.emplace(server, impl->context->long_calls(), impl->context->options().restricted);

  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(Listener(options), std::move(credentials), &impl->port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, options.is_port_reused ? 1 : 0);
  AddKeepalive(options.keepalive, builder);
  AddLimits(options, builder);
  AddCompression(options.response_compression, builder);
  builder.RegisterService(&*impl->service);
  builder.RegisterService(&*impl->health);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) {
    return UnavailableError("gRPC: cannot listen on ", Listener(options));
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GrpcServer::~GrpcServer() {
  impl_->Stop(std::chrono::milliseconds(0));
}

uint16_t GrpcServer::port() const {
  return static_cast<uint16_t>(impl_->port);
}

size_t GrpcServer::num_calls() const {
  return impl_->control_queue->num_tasks();
}

void GrpcServer::Stop(std::chrono::milliseconds deadline) {
  impl_->Stop(deadline);
}

}  // namespace nereid
