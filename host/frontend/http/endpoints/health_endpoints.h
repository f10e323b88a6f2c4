// GET /v2/health/live, /v2/health/ready and .../ready of a model: answered at once. [loop thread]
#pragma once

#include "host/frontend/http/calls/request_builder.h"
#include "host/frontend/http/transport/connection.h"
#include "nereid/server.h"

namespace nereid::http {

void ReplyServerLive(Connection& connection, const Server& server);
// A server that drains is not ready: balancers should send their requests elsewhere.
void ReplyServerReady(Connection& connection, const Server& server, bool is_draining);
void ReplyModelReady(Connection& connection, const Server& server, const ModelName& model);

}  // namespace nereid::http
