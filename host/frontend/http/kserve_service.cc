// The switch over the endpoints.
#include "host/frontend/http/kserve_service.h"

#include <utility>

#include "host/frontend/http/generate_endpoint.h"
#include "host/frontend/http/health_endpoints.h"
#include "host/frontend/http/infer_endpoint.h"
#include "host/frontend/http/log_endpoint.h"
#include "host/frontend/http/metadata_endpoints.h"
#include "host/frontend/http/reply.h"
#include "host/frontend/http/repository_endpoints.h"

namespace nereid::http {

Result<std::unique_ptr<KServeService>> KServeService::Create(
    const Server& server, LogSettings& log_settings, const std::string& header_forward_pattern) {
  NEREID_ASSIGN_OR_RETURN(HeaderForwarding forwarding,
                          HeaderForwarding::Create(header_forward_pattern));
  NEREID_ASSIGN_OR_RETURN(ResponseAllocator allocator,
                          ResponseAllocator::Create<HeapOutputPolicy>());
  return std::unique_ptr<KServeService>(
      new KServeService(server, log_settings, std::move(forwarding), std::move(allocator)));
}

void KServeService::Handle(Connection& connection, const RequestHead& head, Body body) {
  const Route route = FindRoute(head.path);
  if (route.endpoint == Endpoint::kUnknown) {
    connection.Reply({.status = 404}, ErrorBody("Not Found"));
    return;
  }
  if (route.endpoint == Endpoint::kNotBuilt) {
    connection.Reply({.status = 501},
                     ErrorBody(StrCat("'", head.path, "' is not supported by this server")));
    return;
  }
  if (!Takes(route.endpoint, head.method)) {
    connection.Reply({.status = 405}, ErrorBody("Method Not Allowed"));
    return;
  }
  const std::string_view encoding = head.Header("Content-Encoding");
  if (!encoding.empty() && !EqualsIgnoreCase(encoding, "identity")) {
    connection.Reply({.status = 415}, ErrorBody(StrCat("unsupported Content-Encoding '", encoding,
                                                       "': send the body as it is")));
    return;
  }
  HandleRoute(connection, head, std::move(body), route);
}

void KServeService::HandleRoute(Connection& connection, const RequestHead& head, Body body,
                                const Route& route) {
  const auto reply_if_error = [&](const Status& status) {
    if (!status.ok()) ReplyError(connection, status);
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
      return ReplyLogSettings(connection, context_.log_settings, head.method, body);
    case Endpoint::kModelReady:
      return ReplyModelReady(connection, context_.server, route.model);
    case Endpoint::kRepositoryIndex:
      return ReplyRepositoryIndex(connection, context_.server, body);
    case Endpoint::kModelLoad:
    case Endpoint::kModelUnload:
      return StartLoadOrUnload(context_, pool_, connection, body, route);
    default:
      return ReplyMetadata(connection, context_.server, route);
  }
}

}  // namespace nereid::http
