// TRITONSERVER_ServerInferAsync: a client hands its request over. [client thread]
#include "host/core/capi/handles.h"
#include "host/core/observe/trace.h"
#include "host/core/request/infer_request.h"
#include "host/core/server.h"

using nereid::FromHandle;
using nereid::InferRequest;
using nereid::Status;

namespace {

TRITONSERVER_Error* Start(TRITONSERVER_Server* server,
                          TRITONSERVER_InferenceRequest* inference_request,
                          TRITONSERVER_InferenceTrace* trace) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_GONE(inference_request);
  return nereid::AtCEdge([&]() -> Status {
    InferRequest* request = FromHandle(inference_request);
    NEREID_RETURN_IF_ERROR(FromHandle(server)->CheckTakes(*request, nereid::CallerOf(server)));
    NEREID_RETURN_IF_ERROR(request->Prepare(trace == nullptr ? nullptr : FromHandle(trace)));
    // The answer may come, and the client delete the request, before Enqueue returns.
    const auto target = request->target();
    Status status = target->Enqueue(request);
    if (!status.ok()) request->Unprepare();
    return status;
  });
}

}  // namespace

extern "C" {

// On error the request stays the caller's and none of its callbacks runs; the trace is released
// before this returns.
TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(TRITONSERVER_Server* server,
                                                  TRITONSERVER_InferenceRequest* inference_request,
                                                  TRITONSERVER_InferenceTrace* trace) {
  TRITONSERVER_Error* const error = Start(server, inference_request, trace);
  if (error != nullptr && trace != nullptr) FromHandle(trace)->Refuse();
  return error;
}

}  // extern "C"
