// The trace of a request to a model, if it is to have one. [loop thread]
#pragma once

#include "host/frontend/frontend_state.h"
#include "host/frontend/http/calls/request_builder.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/transport/connection.h"

namespace nereid::http {

inline TracedRequest SampleTrace(const KServeContext& context, const Connection& connection,
                                 const RequestHead& head, const ModelName& model) {
  TracedRequest trace = context.state.tracer->Sample(model.name, head.Header("traceparent"));
  if (trace == nullptr) return trace;
  trace->Add("HTTP_RECV_START", connection.request_start_ns());
  NoteTrace(trace, "HTTP_RECV_END");
  return trace;
}

}  // namespace nereid::http
