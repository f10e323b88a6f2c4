// POST .../generate and .../generate_stream: a flat JSON object in; one flat JSON object, or a
// stream of them as server-sent events, out. [loop thread]
#pragma once

#include "host/frontend/http/calls/request_builder.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/transport/connection.h"
#include "nereid/status.h"

namespace nereid::http {

// Ok: the answer comes later. Otherwise the connection is still to be answered, with the error.
Status StartGenerate(KServeContext& context, Connection& connection, const RequestHead& head,
                     Body body, const ModelName& model, bool is_streaming);

}  // namespace nereid::http
