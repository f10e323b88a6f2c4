// GET and POST of /v2/trace/setting and /v2/models/M/trace/setting. [loop thread]
#pragma once

#include "host/frontend/http/calls/request_builder.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/transport/connection.h"

namespace nereid::http {

// A route without a model is the server's.
void AnswerTraceSettings(const KServeContext& context, Connection& connection, Method method,
                         const Body& body, const ModelName& model);

}  // namespace nereid::http
