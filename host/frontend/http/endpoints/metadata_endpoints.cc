// One call of the C API an endpoint.
#include "host/frontend/http/endpoints/metadata_endpoints.h"

#include "host/frontend/http/calls/reply.h"

namespace nereid::http {
namespace {

Result<Message> Ask(const Server& server, const Route& route) {
  const char* const name = route.model.name.c_str();
  const int64_t version = route.model.version;
  switch (route.endpoint) {
    case Endpoint::kServerMetadata:
      return server.Metadata();
    case Endpoint::kModelMetadata:
      return server.ModelMetadata(name, version);
    case Endpoint::kModelConfig:
      return server.ModelConfig(name, version);
    case Endpoint::kModelStatistics:
      return server.ModelStatistics(name, version);
    default:
      return server.ModelStatistics("", -1);
  }
}

}  // namespace

void ReplyMetadata(Connection& connection, const Server& server, const Route& route) {
  ReplyMessage(connection, Ask(server, route));
}

void ReplyMessage(Connection& connection, const Result<Message>& message) {
  if (!message.ok()) {
    ReplyError(connection, message.status());
    return;
  }
  const Result<std::string_view> json = message->Json();
  if (json.ok()) {
    connection.Reply({}, *json);
  } else {
    ReplyError(connection, json.status());
  }
}

}  // namespace nereid::http
