// The endpoints. KServeService calls the function of the endpoint that a request's path names.
// [loop thread]
#pragma once

#include "host/frontend/http/calls/blocking_pool.h"
#include "host/frontend/http/calls/request_builder.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/router.h"
#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/log_settings.h"
#include "nereid/server.h"
#include "nereid/status.h"

namespace nereid::http {

// POST /v2/models/<model>[/versions/<version>]/infer: one request, one response. Returns Ok if the
// response follows later. After an error the connection must still be answered.
Status StartInfer(KServeContext& context, HttpConnection& connection, const RequestHead& head,
                  RequestBody&& body, const RequestedModel& model);

// POST .../generate and .../generate_stream. The request is a flat JSON object. The response is one
// flat JSON object, or a stream of them as server-sent events. Returns like StartInfer.
Status StartGenerate(KServeContext& context, HttpConnection& connection, const RequestHead& head,
                     RequestBody body, const RequestedModel& model, bool is_streaming);

// GET /v2/health/live, /v2/health/ready and .../ready of a model.
void ReplyServerLive(HttpConnection& connection, const Server& server);
// A draining server reports that it is not ready, so that load balancers choose another one.
void ReplyServerReady(HttpConnection& connection, const Server& server, bool is_draining);
void ReplyModelReady(HttpConnection& connection, const Server& server, const RequestedModel& model);

// `route` is a metadata, configuration or statistics endpoint. The JSON of the core is sent
// unchanged.
void ReplyMetadata(HttpConnection& connection, const Server& server, const Route& route);

// Answers with the JSON of `message` or with its error.
void ReplyMessage(HttpConnection& connection, const Result<Message>& message);

// POST /v2/repository/index, .../load and .../unload. A load may take minutes. It runs on the
// blocking pool and continues if its client disconnects.
void ReplyRepositoryIndex(HttpConnection& connection, const Server& server,
                          const RequestBody& body);
void StartLoadOrUnload(KServeContext& context, BlockingPool& pool, HttpConnection& connection,
                       const RequestHead& head, RequestBody& body, const Route& route);

// Endpoints of /v2/systemsharedmemory and /v2/cudasharedmemory.
void HandleSharedMemory(KServeContext& context, BlockingPool& pool, HttpConnection& connection,
                        const RequestBody& body, const Route& route);

// GET and POST /v2/logging. Both methods answer with the current settings.
void ReplyLogSettings(HttpConnection& connection, LogSettings& settings, Method method,
                      const RequestBody& body);

// GET and POST of /v2/trace/setting and /v2/models/<model>/trace/setting. An empty model name means
// the server's settings.
void HandleTraceSettings(const KServeContext& context, HttpConnection& connection, Method method,
                         const RequestBody& body, const RequestedModel& model);

}  // namespace nereid::http
