// /v2/systemsharedmemory and /v2/cudasharedmemory. [loop thread]
#pragma once

#include "host/frontend/http/calls/blocking_pool.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/router.h"
#include "host/frontend/http/transport/connection.h"

namespace nereid::http {

void AnswerSharedMemory(KServeContext& context, BlockingPool& pool, Connection& connection,
                        const Body& body, const Route& route);

}  // namespace nereid::http
