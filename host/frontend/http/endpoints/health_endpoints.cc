// 200 or 400, as load balancers expect it of Triton.
#include "host/frontend/http/endpoints/health_endpoints.h"

#include "host/frontend/http/calls/reply.h"

namespace nereid::http {
namespace {

void ReplyYesOrNo(Connection& connection, const Result<bool>& yes) {
  if (!yes.ok()) {
    ReplyError(connection, yes.status());
    return;
  }
  connection.Reply({.status = *yes ? 200 : 400, .content_type = "text/plain"}, "");
}

}  // namespace

void ReplyServerLive(Connection& connection, const Server& server) {
  ReplyYesOrNo(connection, server.IsLive());
}

void ReplyServerReady(Connection& connection, const Server& server, bool is_draining) {
  ReplyYesOrNo(connection, is_draining ? Result<bool>(false) : server.IsReady());
}

void ReplyModelReady(Connection& connection, const Server& server, const ModelName& model) {
  const Result<bool> ready = server.IsModelReady(model.name.c_str(), model.version);
  if (ready.ok() && !*ready) {
    connection.Reply({.status = 400}, ErrorBody("Model version not ready"));
  } else {
    ReplyYesOrNo(connection, ready);
  }
}

}  // namespace nereid::http
