// What the server and its models say about themselves: metadata, configuration, statistics. JSON of
// the core, passed on as it is. [loop thread]
#pragma once

#include "host/frontend/http/router.h"
#include "host/frontend/http/transport/connection.h"
#include "nereid/server.h"

namespace nereid::http {

// `route` is one of the metadata, configuration and statistics endpoints.
void ReplyMetadata(Connection& connection, const Server& server, const Route& route);

// The JSON of `message`, or its error.
void ReplyMessage(Connection& connection, const Result<Message>& message);

}  // namespace nereid::http
