// POST /v2/repository/index, .../load and .../unload. A load may take minutes: it runs on the pool,
// and goes on when its client leaves. [loop thread]
#pragma once

#include "host/frontend/http/calls/blocking_pool.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/router.h"
#include "host/frontend/http/transport/connection.h"

namespace nereid::http {

void ReplyRepositoryIndex(Connection& connection, const Server& server, const Body& body);
void StartLoadOrUnload(KServeContext& context, BlockingPool& pool, Connection& connection,
                       const Body& body, const Route& route);

}  // namespace nereid::http
