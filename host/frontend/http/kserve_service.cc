// Checks each request and calls its endpoint.
#include "host/frontend/http/kserve_service.h"

#include <optional>
#include <utility>

#include "host/frontend/client_input.h"
#include "host/frontend/frontend_state.h"
#include "host/frontend/http/bodies/binary_extension.h"
#include "host/frontend/http/bodies/compression.h"
#include "host/frontend/http/bodies/output_policy.h"
#include "host/frontend/http/calls/decompressing_call.h"
#include "host/frontend/http/endpoints/endpoints.h"
#include "host/frontend/http/request_access.h"
#include "host/frontend/http/transport/http_connection.h"
#include "host/log.h"
#include "nereid/infer_request.h"

namespace nereid::http {
namespace {

// Copying a shorter input is faster than posted memory.
constexpr uint64_t kMinPostedInputBytes = 64 << 10;

}  // namespace

Result<std::unique_ptr<KServeService>> KServeService::Create(const Server& server,
                                                             FrontendState& state,
                                                             const KServeOptions& options) {
  NEREID_ASSIGN_OR_RETURN(HeaderForwarding forwarding,
                          HeaderForwarding::Create(options.header_forward_pattern));
  NEREID_ASSIGN_OR_RETURN(ResponseAllocator allocator, ResponseAllocator::Create<OutputPolicy>());
  return std::unique_ptr<KServeService>(
      new KServeService(server, state, std::move(forwarding), std::move(allocator), options));
}

bool KServeService::AwaitsBody(const HttpConnection& connection, const RequestHead& head) {
  const Route route = FindRoute(head.path);
  if (route.endpoint == Endpoint::kUnknown || !AcceptsMethod(route.endpoint, head.method)) {
    return false;
  }
  const ApiOperation operation = OperationOf(route.endpoint, head.method);
  return !context_.access.Check(RequestCaller(connection, head), operation, route.model.name);
}

// The size of the JSON part of a request with binary inputs, which stand behind it.
std::optional<size_t> KServeService::NumLeadingBytes(const RequestHead& head, uint64_t body_bytes) {
  if (body_bytes < kMinPostedInputBytes) return std::nullopt;
  const Route route = FindRoute(head.path);
  if (route.endpoint != Endpoint::kInfer || head.method != Method::kPost) return std::nullopt;
  if (head.Header("Content-Encoding").data() != nullptr) return std::nullopt;
  const Result<size_t> json_bytes = JsonLength(head, context_.binary_content_type, body_bytes);
  if (!json_bytes.ok() || body_bytes - *json_bytes < kMinPostedInputBytes) return std::nullopt;
  return *json_bytes;
}

PostedMemory KServeService::AcquirePostedMemory(const RequestHead& head, uint64_t rest_bytes) {
  const Route route = FindRoute(head.path);
  std::shared_ptr<PostedInputBuffer> memory = PostedInputBuffer::Acquire(
      context_.server.get(), route.model.name.c_str(), route.model.version, rest_bytes);
  if (memory == nullptr) return {};
  char* const base = memory->base();
  return {std::move(memory), base};
}

void KServeService::Handle(HttpConnection& connection, const RequestHead& head,
                           RequestBody&& body) {
  LogVerbose("HTTP request: ", static_cast<int>(head.method), " ", head.path);
  const Route route = FindRoute(head.path);
  if (route.endpoint == Endpoint::kUnknown) {
    connection.Reply({.status = 404}, ErrorBody("Not Found"));
    return;
  }
  if (!AcceptsMethod(route.endpoint, head.method)) {
    connection.Reply({.status = 405}, ErrorBody("Method Not Allowed"));
    return;
  }
  const ApiOperation operation = OperationOf(route.endpoint, head.method);
  if (!CheckAccess(context_.access, connection, head, operation, route.model.name)) return;
  if (!route.oversized_version.empty()) {
    return ReplyError(connection, ParseModelVersion(route.oversized_version).status());
  }
  const std::optional<Encoding> encoding = ParseContentEncoding(head.Header("Content-Encoding"));
  if (!encoding) {
    connection.Reply({.status = 501, .extra_headers = "Accept-Encoding: gzip, deflate\r\n"},
                     ErrorBody("Unsupported compression type"));
    return;
  }
  if (*encoding != Encoding::kIdentity) {
    // The head's strings are in the connection's memory or in that of the body, except for the
    // path, which a service in front of this one may have replaced.
    RequestHead kept = head;
    kept.path = kept.query = {};
    auto on_plain = [this, &connection, kept = std::move(kept), route](RequestBody plain) {
      HandleRoute(connection, kept, std::move(plain), route);
    };
    return DecompressingCall::Start(connection, std::move(body), std::move(on_plain));
  }
  HandleRoute(connection, head, std::move(body), route);
}

void KServeService::HandleRoute(HttpConnection& connection, const RequestHead& head,
                                RequestBody&& body, const Route& route) {
  const auto reply_if_error = [&](const Status& status) {
    if (status.ok()) return;
    LogVerbose("Infer failed: ", status.message());
    ReplyError(connection, status, context_.http_status_of_error);
  };
  switch (route.endpoint) {
    case Endpoint::kInfer:
      return reply_if_error(StartInfer(context_, connection, head, std::move(body), route.model));
    case Endpoint::kGenerate:
    case Endpoint::kGenerateStream:
      return reply_if_error(StartGenerate(context_, connection, head, std::move(body), route.model,
                                          route.endpoint == Endpoint::kGenerateStream));
    case Endpoint::kServerLive:
      return ReplyServerLive(connection, context_.server);
    case Endpoint::kServerReady:
      return ReplyServerReady(connection, context_.server, is_draining_.load());
    case Endpoint::kLogSettings:
      return ReplyLogSettings(connection, context_.state.log_settings, head.method, body);
    case Endpoint::kTraceSettings:
      return HandleTraceSettings(context_, connection, head.method, body, route.model);
    case Endpoint::kModelReady:
      return ReplyModelReady(connection, context_.server, route.model);
    case Endpoint::kRepositoryIndex:
      return ReplyRepositoryIndex(connection, context_.server, body);
    case Endpoint::kSystemMemoryStatus:
    case Endpoint::kSystemMemoryRegister:
    case Endpoint::kSystemMemoryUnregister:
    case Endpoint::kCudaMemoryStatus:
    case Endpoint::kCudaMemoryRegister:
    case Endpoint::kCudaMemoryUnregister:
      return HandleSharedMemory(context_, pool_, connection, body, route);
    case Endpoint::kModelLoad:
    case Endpoint::kModelUnload:
      return StartLoadOrUnload(context_, pool_, connection, head, body, route);
    default:
      return ReplyMetadata(connection, context_.server, route);
  }
}

}  // namespace nereid::http
