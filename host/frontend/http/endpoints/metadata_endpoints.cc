// Health, metadata, configuration and statistics. Each endpoint is one call of the C API.
#include "host/frontend/http/endpoints/endpoints.h"

#include "host/frontend/http/transport/http_connection.h"

namespace nereid::http {
namespace {

void ReplyBool(HttpConnection& connection, const Result<bool>& yes) {
  if (!yes.ok()) {
    ReplyError(connection, yes.status());
    return;
  }
  connection.Reply({.status = *yes ? 200 : 400, .content_type = "text/plain"}, "");
}

Result<Message> CallServer(const Server& server, const Route& route) {
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

void ReplyServerLive(HttpConnection& connection, const Server& server) {
  ReplyBool(connection, server.IsLive());
}

void ReplyServerReady(HttpConnection& connection, const Server& server, bool is_draining) {
  ReplyBool(connection, is_draining ? Result<bool>(false) : server.IsReady());
}

void ReplyModelReady(HttpConnection& connection, const Server& server,
                     const RequestedModel& model) {
  const char* const name = model.name.c_str();
  const Result<bool> ready = server.IsModelReady(name, model.version);
  if (!ready.ok() || *ready) return ReplyBool(connection, ready);
  const Status known = server.IsDecoupled(name, model.version).status();
  if (known.code() == StatusCode::kNotFound) return ReplyError(connection, known);
  connection.Reply({.status = 400}, ErrorBody("Model version not ready"));
}

void ReplyMetadata(HttpConnection& connection, const Server& server, const Route& route) {
  ReplyMessage(connection, CallServer(server, route));
}

void ReplyMessage(HttpConnection& connection, const Result<Message>& message) {
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
