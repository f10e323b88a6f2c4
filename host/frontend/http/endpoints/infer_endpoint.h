// POST /v2/models/<model>[/versions/<version>]/infer: one request, one response. [loop thread]
#pragma once

#include "host/frontend/http/calls/request_builder.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/transport/connection.h"
#include "nereid/status.h"

namespace nereid::http {

// Ok: the answer comes later. Otherwise the connection is still to be answered, with the error.
Status StartInfer(KServeContext& context, Connection& connection, const RequestHead& head,
                  Body body, const ModelName& model);

}  // namespace nereid::http
