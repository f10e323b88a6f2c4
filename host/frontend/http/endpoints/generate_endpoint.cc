// The two ways to answer, and the model's signature that both need first.
#include "host/frontend/http/endpoints/generate_endpoint.h"

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "host/frontend/http/bodies/generate_body.h"
#include "host/frontend/http/bodies/model_signature.h"
#include "host/frontend/http/calls/generate_reply.h"
#include "host/frontend/http/calls/model_call.h"
#include "host/frontend/http/calls/reply.h"
#include "host/frontend/http/endpoints/trace_request.h"

namespace nereid::http {
namespace {

// generate: takes exactly one response, from a decoupled model too.
class GenerateCall final : public ModelCall {
 public:
  using ModelCall::ModelCall;

 private:
  void OnModelResponse(InferResponse response) override {
    if (response_.empty()) {
      response_ = std::move(response);
      return;
    }
    ReplyNotOne();
    LeaveClient();
    Cancel();
  }

  void OnModelEnd() override {
    if (response_.empty()) {
      ReplyNotOne();
      return;
    }
    std::string json;
    const Status status = AppendGenerateReply(json, response_);
    if (status.ok()) {
      const std::string headers = ExtraHeaders();
      connection()->Reply({.extra_headers = headers}, json);
    } else {
      ReplyError(*connection(), status);
    }
  }

  void ReplyNotOne() {
    ReplyError(*connection(),
               InternalError("generate expects model to produce exactly 1 response, use generate "
                             "stream for model that generates various number of responses"));
  }

  InferResponse response_;
};

// generate_stream: each response at once. Until the first one the answer can still be a plain
// error.
class GenerateStreamCall final : public ModelCall {
 public:
  using ModelCall::ModelCall;

 private:
  void OnModelResponse(InferResponse response) override {
    event_ = "data: ";
    const Status status = AppendGenerateReply(event_, response);
    response = InferResponse();  // its memory, before the bytes of it wait for the client
    if (!status.ok() && !has_begun_) {
      ReplyError(*connection(), status);
      LeaveClient();
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
  std::string event_;  // kept for its capacity
};

// The signature is parsed anew only when the metadata has changed, which a reload can do.
Result<const ModelSignature*> SignatureOf(const Server& server, const ModelName& model) {
  struct Entry {
    std::string metadata;
    ModelSignature signature;
  };
  thread_local std::unordered_map<std::string, Entry> cache;

  NEREID_ASSIGN_OR_RETURN(const Message message,
                          server.ModelMetadata(model.name.c_str(), model.version));
  NEREID_ASSIGN_OR_RETURN(const std::string_view metadata, message.Json());
  Entry& entry = cache[StrCat(model.name, '/', model.version)];
  if (entry.metadata != metadata) {
    NEREID_ASSIGN_OR_RETURN(entry.signature, ParseModelSignature(metadata));
    entry.metadata = metadata;
  }
  return &entry.signature;
}

}  // namespace

Status StartGenerate(KServeContext& context, Connection& connection, const RequestHead& head,
                     Body body, const ModelName& model, bool is_streaming) {
  NEREID_ASSIGN_OR_RETURN(const ModelSignature* signature, SignatureOf(context.server, model));
  GenerateBody parsed;
  NEREID_RETURN_IF_ERROR(
      ParseGenerateBody(body.bytes(), *signature, connection.limits().max_json_depth, parsed));
  NEREID_ASSIGN_OR_RETURN(InferRequest request, BuildRequest(context.server, model, parsed.options,
                                                             parsed.inputs, /*outputs=*/{}));
  NEREID_RETURN_IF_ERROR(context.header_forwarding.Apply(head, request));
  // All of the body is in the parsed inputs: its memory is not kept.
  std::unique_ptr<ModelCall> call;
  if (is_streaming) {
    call =
        std::make_unique<GenerateStreamCall>(context, connection, Body(), std::move(parsed.inputs));
  } else {
    call = std::make_unique<GenerateCall>(context, connection, Body(), std::move(parsed.inputs));
  }
  call->TellLoad(ParseOrcaFormat(head.Header("endpoint-load-metrics-format")));
  return ModelCall::Launch(std::move(call), std::move(request),
                           SampleTrace(context, connection, head, model));
}

}  // namespace nereid::http
