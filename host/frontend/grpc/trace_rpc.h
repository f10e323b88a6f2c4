// The TraceSetting call. [loop threads]
#pragma once

#include "grpc_service.pb.h"
#include "host/frontend/tracing/tracer.h"
#include "nereid/server.h"

namespace nereid {

// Changes what the request asks for, then tells the settings. All of it or, with an error, nothing.
Status AnswerTraceSetting(const Server& server, Tracer& tracer,
                          const inference::TraceSettingRequest& request,
                          inference::TraceSettingResponse& response);

}  // namespace nereid
