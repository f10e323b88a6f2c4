// The generate endpoints, and the cache of model signatures that they use.
#include "host/frontend/http/endpoints/endpoints.h"

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "host/frontend/http/bodies/generate_body.h"
#include "host/frontend/http/calls/model_call.h"
#include "host/frontend/http/calls/response_bodies.h"
#include "host/frontend/http/transport/http_connection.h"

namespace nereid::http {
namespace {

// generate: requires exactly one response, also from a decoupled model.
class GenerateCall final : public ModelCall {
 public:
  using ModelCall::ModelCall;

 private:
  void OnModelResponse(InferResponse response) override {
    if (response_.empty()) {
      response_ = std::move(response);
      return;
    }
    ReplyResponseCountError();
    DetachClient();
    Cancel();
  }

  void OnModelEnd() override {
    if (response_.empty()) {
      ReplyResponseCountError();
      return;
    }
    std::string json;
    const Status status = AppendGenerateResponse(json, response_);
    if (status.ok()) {
      const std::string headers = ExtraHeaders();
      connection()->Reply({.extra_headers = headers}, json);
    } else {
      ReplyError(*connection(), status);
    }
  }

  void ReplyResponseCountError() {
    ReplyError(*connection(),
               InternalError("generate expects model to produce exactly 1 response, use generate "
                             "stream for model that generates various number of responses"));
  }

  InferResponse response_;
};

// generate_stream: sends each response as soon as it arrives. Before the first one an error can
// still be sent as a plain error response.
class GenerateStreamCall final : public ModelCall {
 public:
  using ModelCall::ModelCall;

 private:
  void OnModelResponse(InferResponse response) override {
    event_ = "data: ";
    const Status status = AppendGenerateResponse(event_, response);
    response = InferResponse();  // release its memory before the event waits for the client
    if (!status.ok() && !has_begun_) {
      ReplyError(*connection(), status);
      DetachClient();
      Cancel();
      return;
    }
    if (!status.ok()) event_ += ErrorBody(status.message());
    event_ += "\n\n";
    Begin();
    if (connection() != nullptr) connection()->SendChunk(event_);
  }

  void OnModelEnd() override {
    Begin();
    if (connection() != nullptr) connection()->EndStream();
  }

  void Begin() {
    if (std::exchange(has_begun_, true)) return;
    const std::string headers = ExtraHeaders();
    connection()->BeginStream(
        {.content_type = "text/event-stream; charset=utf-8", .extra_headers = headers});
  }

  bool has_begun_ = false;
  std::string event_;  // reused for its capacity
};

// Parses the signature again only if the metadata has changed, for example after a reload.
Result<const ModelSignature*> CachedSignature(const Server& server, const RequestedModel& model) {
  struct Entry {
    std::string metadata;
    ModelSignature signature;
  };
  thread_local std::unordered_map<std::string, Entry> cache;

  NEREID_ASSIGN_OR_RETURN(const Message message,
                          server.ModelMetadata(model.name.c_str(), model.version));
  NEREID_ASSIGN_OR_RETURN(const std::string_view metadata, message.Json());
  constexpr size_t kMaxEntries = 256;  // models may come and go under ever new names
  if (cache.size() > kMaxEntries) cache.clear();
  Entry& entry = cache[StrCat(model.name, '/', model.version)];
  if (entry.metadata != metadata) {
    NEREID_ASSIGN_OR_RETURN(entry.signature, ParseModelSignature(metadata));
    entry.metadata = metadata;
  }
  return &entry.signature;
}

}  // namespace

Status StartGenerate(KServeContext& context, HttpConnection& connection, const RequestHead& head,
                     RequestBody body, const RequestedModel& model, bool is_streaming) {
  NEREID_ASSIGN_OR_RETURN(const ModelSignature* signature, CachedSignature(context.server, model));
  GenerateBody parsed;
  NEREID_RETURN_IF_ERROR(
      ParseGenerateBody(body.bytes(), *signature, connection.limits().max_json_depth, parsed));
  NEREID_ASSIGN_OR_RETURN(InferRequest request, BuildRequest(context.server, model, parsed.options,
                                                             parsed.inputs, /*outputs=*/{}));
  NEREID_RETURN_IF_ERROR(context.header_forwarding.Apply(head, context.access, request));
  // The parsed inputs contain all data, so the body's memory is not kept.
  const size_t body_bytes = body.reservation.bytes();
  NEREID_RETURN_IF_ERROR(ReserveInputs(parsed.inputs, body.reservation));
  RequestBody kept{.memory = {}, .reservation = std::move(body.reservation)};
  kept.reservation.ShrinkTo(kept.reservation.bytes() - body_bytes);
  std::unique_ptr<ModelCall> call;
  if (is_streaming) {
    call = std::make_unique<GenerateStreamCall>(context, connection, std::move(kept),
                                                std::move(parsed.inputs));
  } else {
    call = std::make_unique<GenerateCall>(context, connection, std::move(kept),
                                          std::move(parsed.inputs));
  }
  call->ReportLoadMetrics(ParseOrcaFormat(head.Header("endpoint-load-metrics-format")));
  return ModelCall::Launch(std::move(call), std::move(request),
                           SampleTrace(context, connection, head, model));
}

}  // namespace nereid::http
